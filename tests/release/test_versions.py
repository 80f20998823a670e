"""A version is what the changes call for: major for columns gone, minor for rows, patch for values."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from releases import FACTS, INGEST, VIEWS, questions, thresholds, write_data

from pipelines import database
from pipelines.errors import LongtailError
from pipelines.release import contents, versions

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture
def changed(tmp_path):
    """The changes from release 1.2.3 of the small world to one of other tables, or of files changed by hand."""

    def compare(*tables, edit=None):
        with database.connect(INGEST.memory_gb, 1) as db:
            for name, chosen in (("1.2.3", ()), ("new", tables)):
                (tmp_path / name).mkdir()
                contents.write_tables(db, write_data(tmp_path / "data", *chosen), tmp_path / name)
            if edit:
                edit(tmp_path / "new" / "popqa.parquet", pq.read_table(tmp_path / "new" / "popqa.parquet"))
            return versions.changes(db, tmp_path / "1.2.3", tmp_path / "new")

    return compare


def test_nothing_changed(changed):
    assert changed()["level"] is None


def test_moved_values_are_a_patch(changed):
    found = changed(questions(FACTS, VIEWS | {1: 8}, "2021-11"))
    assert found["tables"]["popqa"]["values_changed"] == {"s_pop": 1, "month": 5}
    assert versions.next_version(found, None) == "1.2.4"


def test_questions_added_are_minor(changed):
    found = changed(questions([*FACTS, (1, 21)]))
    assert (found["tables"]["popqa"]["rows_added"], found["tables"]["popqa"]["rows_gone"]) == (1, 0)
    assert versions.next_version(found, None) == "1.3.0"


def test_questions_gone_are_minor(changed):
    assert versions.next_version(changed(questions(FACTS[:-1])), None) == "1.3.0"


def test_another_language_models_thresholds_are_minor(changed):
    assert versions.next_version(changed(None, None, thresholds(["tiny", "other"])), None) == "1.3.0"


def test_a_new_column_is_minor(changed):
    found = changed(edit=lambda file, table: pq.write_table(table.append_column("new", table["id"]), file))
    assert (found["tables"]["popqa"]["columns_added"], found["level"]) == (["new"], "minor")


@pytest.mark.parametrize("column", ["split", "id"])
def test_a_column_gone_or_of_another_type_is_major(changed, column):
    def edit(file, table):
        table = table.drop_columns("split") if column == "split" else table.set_column(0, "id", table["subj"])
        pq.write_table(table, file)

    found = changed(edit=edit)
    assert found["tables"]["popqa"]["columns_gone"] == [column]
    assert versions.next_version(found, None) == "2.0.0"


def test_a_table_gone_is_major(changed):
    assert versions.next_version(changed(edit=lambda file, _: file.unlink()), None) == "2.0.0"


def test_a_wanted_version_must_be_high_enough(changed):
    found = changed(questions(FACTS[:-1]))
    assert versions.next_version(found, "2.0.0") == "2.0.0"
    assert versions.next_version(found, "1.3.0") == "1.3.0"
    with pytest.raises(
        LongtailError, match=r"1\.2\.9: too low a version for the minor change since 1\.2\.3, expected 1\.3"
    ):
        versions.next_version(found, "1.2.9")
    with pytest.raises(LongtailError, match="v2: no version"):
        versions.next_version(found, "v2")


def test_the_first_release_is_one(tmp_path):
    (tmp_path / "new").mkdir()
    with database.connect(INGEST.memory_gb, 1) as db:
        contents.write_tables(db, write_data(tmp_path / "data"), tmp_path / "new")
        found = versions.changes(db, None, tmp_path / "new")
    assert versions.next_version(found, None) == "1.0.0"
    assert versions.next_version(found, "0.1.0") == "0.1.0"


def test_the_latest_is_by_number_and_finished(tmp_path):
    assert versions.latest(tmp_path) is None
    for name in ("1.9.0", "1.10.0", "2.0.0", ".3.0.0", "latest"):
        (tmp_path / name).mkdir()
        if name != "2.0.0":
            (tmp_path / name / contents.SUMS).touch()
    assert versions.latest(tmp_path).name == "1.10.0"
