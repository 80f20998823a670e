"""The list of mutants stays true: each replaces a text that its file has once, and names tests that are there."""

import ast
from functools import cache

import pytest

from benchmarks import mutants


def test_every_mutant_can_be_made_is_listed_once_and_its_tests_are_there(root):
    """After a change of the code: mend `before`, `after` or `tests` in benchmarks/mutants.yaml."""
    names_in = cache(lambda file: {getattr(node, "name", "") for node in ast.parse((root / file).read_text()).body})
    stale, entries = [], mutants.read()
    for mutant in entries:
        try:
            text = (root / mutant.file).read_text(encoding="utf-8")
            assert mutant.apply(text) != text, f"{mutant.file}: {mutant.before!r} is not changed"
            assert mutant.tests, f"{mutant.file}: {mutant.before!r} has no tests"
            for test in mutant.tests:
                file, _, name = test.partition("[")[0].partition("::")  # a case of a test is named in brackets
                assert name in names_in(file) | {""}, f"{test}: no such test"
        except (AssertionError, OSError, SyntaxError, ValueError) as error:
            stale.append(str(error))
    assert not stale
    assert len({(mutant.file, mutant.before, mutant.after) for mutant in entries}) == len(entries)


def test_a_text_that_occurs_twice_is_an_error_that_names_it():
    mutant = mutants.Mutant("a/b.py", "x", "y", "", ("t",))
    with pytest.raises(ValueError, match=r"mutants\.yaml: 'x' occurs 2 times in a/b\.py, expected once"):
        mutant.apply("x = x")
