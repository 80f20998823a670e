"""The relations: PopQA's sixteen, and clear errors for a faulty entry."""

import pytest

from pipelines.errors import LongtailError
from pipelines.popqa.relations import RELATIONS, read_relations


def test_there_are_the_sixteen_relations_of_the_paper():
    assert list(RELATIONS) == (
        "P106 P136 P17 P57 P58 P462 P641 P25 P19 P22 P162 P1376 P86 P140 P50 P36".split()  # noqa: SIM905
    )
    assert RELATIONS["P19"].name == "place of birth"
    assert RELATIONS["P19"].question("Ada {} Lovelace") == "In what city was Ada {} Lovelace born?"


def test_a_new_relation_is_one_entry(tmp_path):
    (tmp_path / "r.yaml").write_text('P40: {name: child, template: "Who is the child of {}?"}\n')
    assert read_relations(tmp_path / "r.yaml")["P40"].question("Ada") == "Who is the child of Ada?"


@pytest.mark.parametrize(
    "text",
    [
        'child: {name: child, template: "Who is {}?"}',
        "P40: {name: child}",
        'P40: {name: child, template: "Who is it?"}',
        'P40: {name: child, template: "Who is {}?"}\nP41: {name: child, template: "What is {}?"}',
    ],
)
def test_a_faulty_entry_is_named(tmp_path, text):
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(LongtailError, match=r"r\.yaml: .*(P40|child|two relations)"):
        read_relations(tmp_path / "r.yaml")
