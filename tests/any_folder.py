"""Fixtures of tests that work on files of predictions in a folder without a project."""

import json
import sys

import pytest
import systems

from flows import cli, terminal


@pytest.fixture
def made():
    return systems.make()


@pytest.fixture
def folder(tmp_path, made):
    systems.popqa(tmp_path / "popQA.tsv", made)
    (tmp_path / "closed.csv").write_text(systems.plain(made, made.closed), encoding="utf-8")
    (tmp_path / "rag.csv").write_text(systems.plain(made, made.augmented), encoding="utf-8")
    return tmp_path


@pytest.fixture
def longtail(folder, monkeypatch, capsys):
    """The command in this process, called from the folder. Gives exit code, output and errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(terminal, "CALLED_FROM", folder)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["longtail", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def tuned(longtail, folder):
    """`longtail thresholds` of two files; gives the rule and what was said."""

    def call(*words, out="thresholds"):
        code, said, error = longtail("thresholds", *words, "--questions", "popQA.tsv", "--out", out)
        assert (code, error) == (0, "")
        return json.loads((folder / out / "rule.json").read_text()), said

    return call
