"""How the page was made: stages and runs as dvc.yaml has them, hashes of what was read and of nothing else."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.report.page import Table
from pipelines.report.provenance_section import provenance

MANIFEST = [{"path": "pile/0.zst", "bytes": 7, "sha256": "f" * 64, "source": "https://example.org/0.zst"}]
STAGES = """
stages:
  fetch: {desc: The sources, deps: [code.py], outs: [data/raw]}
  chunk:
    {matrix: {corpus: [wikipedia, pile]}, deps: ["data/raw/${item.corpus}"], outs: ["data/corpus/${item.corpus}"]}
  base_lm: {matrix: {lm: "${lms}"}, deps: [data/corpus/pile], outs: ["data/lm/${item.lm}"]}
  tune: {deps: ["data/lm/${lms[0]}"], outs: [data/tuned], metrics: [data/metrics/tune.json]}
  spare: {deps: [data/raw], outs: [data/spare]}
  report: {deps: [code.py, data/corpus, data/metrics], outs: [data/report]}
"""
LOCK = """
stages:
  chunk@pile: {outs: [{path: data/corpus/pile, md5: 0123456789abcdef.dir, size: 12, nfiles: 3}]}
  base_lm@tiny: {outs: [{path: data/lm/tiny, md5: ee, size: 1}]}
  base_lm: {outs: [{path: data/metrics/base_lm.json, md5: ff, size: 1}]}
  tune: {outs: [{path: data/metrics/tune.json, md5: aaaaaaaaaaaaaaaa, size: 5}, {path: data/tuned, md5: bb, size: 1}]}
  spare: {outs: [{path: data/spare, md5: cc, size: 1}]}
  report: {outs: [{path: data/report, md5: dd, size: 1}]}
"""


@pytest.fixture
def section(tmp_path):
    (tmp_path / "dvc.yaml").write_text(STAGES)
    (tmp_path / "dvc.lock").write_text(LOCK)
    return provenance(tmp_path / "data", MANIFEST, {"lms": ["tiny", "large"]})


def table(section, name):
    (found,) = [block for block in section.blocks if isinstance(block, Table) and block.name == name]
    return found


def test_stages_are_counted_by_their_matrix_and_come_after_those_whose_outputs_they_read(section):
    stages = table(section, "stages")
    assert [[name, runs, after] for name, _, runs, after, _ in stages.rows] == [
        ["fetch", 1, ""],
        ["chunk", 2, "fetch"],
        ["base_lm", 2, "chunk"],
        ["tune", 1, "base_lm"],
        ["spare", 1, "fetch"],
        ["report", 1, "chunk, tune"],
    ]
    assert stages.rows[1][-1] == "data/corpus/<corpus>"
    assert "the 4 stages before it (6 runs)" in section.blocks[0], "spare is not before the report"


def test_the_state_is_of_what_the_report_read_by_stages_there_are_and_never_its_own(section):
    assert table(section, "state").rows == [
        ["data/corpus/pile", 3, 12, "0123456789ab"],
        ["data/metrics/tune.json", 1, 5, "aaaaaaaaaaaa"],
    ]


def test_source_files_have_their_hashes_with_or_without_stages(section, tmp_path):
    alone = provenance(tmp_path / "elsewhere/data", MANIFEST, {"lms": ["tiny"]})
    assert alone.missing
    for own in (section, alone):
        assert table(own, "source-files").rows == [["pile/0.zst", 7, "f" * 12, "https://example.org/0.zst"]]


def test_the_dates_of_the_sources_are_named_and_warned_about_when_they_are_far_apart(tmp_path):
    (tmp_path / "data/questions/popqa").mkdir(parents=True)
    pq.write_table(pa.table({"month": ["2026-09", "2026-09"]}), tmp_path / "data/questions/popqa/popqa.parquet")
    dated = [
        *({"dataset": "wikidata", "date": "2026-09-28"} | MANIFEST[0], {"dataset": "pile"} | MANIFEST[0]),
        {"dataset": "wikipedia", "date": "2018-12-20"} | MANIFEST[0],
    ]
    section = provenance(tmp_path / "data", dated, {"lms": ["tiny"]}, 31)
    assert table(section, "dates").rows == [
        ["Wikidata", "2026-09-28"],
        ["Wikipedia", "2018-12-20"],
        ["page views", "2026-09"],
    ]
    warning = section.blocks[1]
    assert warning.startswith("These dates are up to 2,839 days apart, more than fetch.days_apart allows (31)")
    near = provenance(tmp_path / "data", dated[:1], {"lms": ["tiny"]}, 31)
    assert [type(block) for block in near.blocks] == [Table, Table]
