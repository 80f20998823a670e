"""A version is what the changes call for: major for columns gone, minor for rows, patch for
values.
"""

import shutil

import pyarrow.parquet as pq
import pytest
from releases import FACTS, INGEST, VIEWS, questions, thresholds, write_data

from pipelines.errors import LongtailError
from pipelines.release import contents, versions
from pipelines.storage import database


def edited(change):
    """An edit of popqa.parquet by a function of its table."""
    return lambda file: pq.write_table(change(pq.read_table(file)), file)


def retriever(file):
    """The weights in the release whose table is `file`."""
    return file.with_name("retriever") / "dense/model.safetensors"


def copy_as(folder, name):
    shutil.copytree(folder, folder.with_name(name))


def changes(folder, tables=(), edit=None) -> dict:
    """The changes from release 1.2.3 of the small world to one of other tables, or of files
    changed by hand.
    """
    with database.connect(INGEST.memory_gb, 1) as db:
        for name, chosen in (("1.2.3", ()), ("new", tables)):
            (folder / name).mkdir()
            contents.write_tables(db, write_data(folder / "data", *chosen), folder / name)
            contents.copy_retrievers(folder / "data", folder / name)
        if edit:
            edit(folder / "new/popqa.parquet")
        return versions.changes_since(db, folder / "1.2.3", folder / "new")


@pytest.mark.parametrize(
    ("tables", "edit", "version", "found"),
    [
        (
            [questions(FACTS, VIEWS | {1: 8}, "2021-11")],
            None,
            "1.2.4",
            {"values_changed": {"s_pop": 1, "month": 5}},
        ),
        ([questions([*FACTS, (1, 21)])], None, "1.3.0", {"rows_added": 1, "rows_gone": 0}),
        ([questions(FACTS[:-1])], None, "1.3.0", {"rows_added": 0, "rows_gone": 1}),
        (
            [None, None, thresholds(["tiny", "other"])],
            None,
            "1.3.0",
            {"rows_added": 0, "rows_gone": 0},
        ),
        (
            [],
            edited(lambda table: table.append_column("new", table["id"])),
            "1.3.0",
            {"columns_added": ["new"]},
        ),
        (
            [],
            edited(lambda table: table.drop_columns("split")),
            "2.0.0",
            {"columns_gone": ["split"]},
        ),
        (
            [],
            edited(lambda table: table.set_column(0, "id", table["subj"])),
            "2.0.0",
            {"columns_gone": ["id"]},
        ),
        ([], lambda file: file.unlink(), "2.0.0", {}),
        ([], lambda file: retriever(file).write_text("tuned anew"), "1.2.4", {}),
        (
            [],
            lambda file: retriever(file).parent.rename(file.with_name("gone")),
            "2.0.0",
            {},
        ),
        ([], lambda file: copy_as(retriever(file).parent, "e5"), "1.3.0", {}),
    ],
    ids=[
        "value",
        "question",
        "question gone",
        "thresholds",
        "column",
        "column gone",
        "other type",
        "table gone",
        "retriever",
        "retriever gone",
        "another retriever",
    ],
)
def test_the_version_is_what_the_changes_call_for(tmp_path, tables, edit, version, found):
    said = changes(tmp_path, tables, edit)
    assert found.items() <= said["tables"].get("popqa", {}).items()
    assert said["level"], "it is a change"
    assert versions.next_version(said, None) == version


def test_a_wanted_version_must_be_high_enough(tmp_path):
    (tmp_path / "gone").mkdir()
    assert changes(tmp_path)["level"] is None
    found = changes(tmp_path / "gone", [questions(FACTS[:-1])])
    assert versions.next_version(found, "2.0.0") == "2.0.0"
    low = r"1\.2\.9: too low a version for the minor change since 1\.2\.3, expected 1\.3"
    for wanted, said in (("1.2.9", low), ("v2", "v2: no version")):
        with pytest.raises(LongtailError, match=said):
            versions.next_version(found, wanted)
    with database.connect(INGEST.memory_gb, 1) as db:
        first = versions.changes_since(db, None, tmp_path / "new")
    assert [versions.next_version(first, wanted) for wanted in (None, "0.1.0")] == [
        "1.0.0",
        "0.1.0",
    ]
