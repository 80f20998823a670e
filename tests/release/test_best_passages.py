"""The passages of a release: by them others send the run's own prompts, without an index."""

import json
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from profile_values import values_of
from releases import MADE_BY, files_of, release, write_data

from pipelines.answering import answer, passages, prompts
from pipelines.errors import LongtailError
from pipelines.foreign import imported_passages
from pipelines.params import params_file
from pipelines.retrieval import bm25_build
from pipelines.sources.streams import open_text

pytestmark = pytest.mark.usefixtures("workplace")
DOCUMENTS = [  # title, text
    ("Ada", " Ada was a poet.\n\nHer  occupation.\n"),
    (None, "Bob\nHis occupation was that of a king."),
    ("Cleo", "A cleaner\tof façades.\u2028Cleo's occupation."),
    ("Velm", "A harbour."),  # has no word of any question
]
K = 4


@pytest.fixture
def data() -> Path:
    """A folder of datasets with an index of Wikipedia."""
    data = write_data(Path("data"))
    documents = []
    for number, (title, text) in enumerate(DOCUMENTS):
        documents.append({"id": f"wikipedia:{number}:0", "title": title, "text": text})
    docs = data / "corpus/wikipedia/docs.parquet"
    docs.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(documents), docs)
    bm25_build.build(docs, data / "index/bm25/wikipedia", 1.0, tiny_models.compute(), "test")
    write_licence("CC-BY-SA-4.0 and GFDL")
    return data


def write_licence(licence: str) -> None:
    manifest = Path("data/raw/manifest.json")
    entries = json.loads(manifest.read_text(encoding="utf-8"))[:1]
    entries.append(entries[0] | {"dataset": "wikipedia", "licence": licence})
    manifest.write_text(json.dumps(entries), encoding="utf-8")


def made_by(ways=("closed_book", "bm25"), without: str = "") -> dict:
    """What made a run with these ways; it has no output of the name `without`."""
    changed = deepcopy(MADE_BY)
    values = values_of("sample")
    values |= {"ways": [*ways]}
    values["answer"] |= {"passages": 3, "n_shots": 2}
    values["thresholds"]["pairs"] = []
    changed["params"] = values
    outputs = {"data/corpus/wikipedia": "", "data/index/bm25/wikipedia": ""}
    outputs.pop(without, None)
    changed["dvc"]["indexes"] = outputs
    return changed


def released(data: Path, out="out", k=K, **more) -> Path:
    return release(data, Path(out), made_by=made_by(**more), passages_of_question=k)


def records_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in open_text(folder / "passages/bm25.jsonl.gz")]


def test_given_sends_the_prompts_of_the_run(data):
    """The same passages, ids, titles and scores too, and so the same answers."""
    folder = released(data)
    table = pq.read_table(folder / "popqa.parquet")
    assert [record["id"] for record in records_of(folder)] == [str(id_) for id_ in table["id"]]

    raw = Path("data/raw/retrieval")
    raw.mkdir()
    (folder / "passages/bm25.jsonl.gz").rename(raw / "bm25.jsonl.gz")
    settings = params_file.settings_of(params_file.parse(made_by()["params"]), answer.Settings)
    imported = SimpleNamespace(
        ingest=settings.ingest, parts=SimpleNamespace(answered=["popqa"]), ways=["given"]
    )
    imported_passages.import_passages(imported, "retrieval")
    pool = prompts.read_questions(pq.read_table("data/questions/popqa/popqa.parquet"))
    for place in range(len(pool.ids)):
        sent = []
        for way in ("bm25", "given"):
            source = passages.open_source(way, None, settings, data)
            asked, found = passages.prompts_of_question(
                settings, "popqa", pool, place, "tiny", source
            )
            sent.append((asked, found.to_pylist()))
        assert sent[0] == sent[1]
        assert "poet.\n\nHer  occupation.\n" in sent[0][0][0].document


def test_every_question_has_the_best_documents_as_they_are(data):
    folder = released(data)
    (first, *_) = records_of(folder)
    best = first["output"]["retrieval_result"]
    assert (first["question"], first["golden_answers"]) == (
        "What is Ada's occupation?",
        ["poet", "bard"],
    )
    assert [passage["score"] > 0 for passage in best] == [True, True, True, False], (
        "a document without a word of the question is there, as the run's models may read it"
    )
    found = {(passage["title"], passage["text"]) for passage in best}
    assert found == {(title or "", text) for title, text in DOCUMENTS}
    assert files_of(folder) == files_of(released(data, "again"))


def test_card_and_licence_name_the_passages(data):
    folder = released(data, k=2)
    card = (folder / "README.md").read_text(encoding="utf-8")
    licence = (folder / "LICENSE.md").read_text(encoding="utf-8")
    assert "`passages/` has the 2 best documents that each retriever of the run finds" in card
    assert "- cc-by-sa-4.0\n" in card
    assert "texts in `passages/`, from Wikipedia" in licence
    assert "[CC-BY-SA-4.0 and GFDL](https://spdx.org/licenses/CC-BY-SA-4.0.html)" in licence
    assert "No text of Wikipedia" not in " ".join(licence.split())
    assert "passages/bm25.jsonl.gz" in (folder / "SHA256SUMS").read_text(encoding="utf-8")


def test_passages_alone_make_a_new_version(data):
    first = release(data, Path("out"), made_by=made_by())
    assert release(data, Path("out"), made_by=made_by()) is None
    licence = (first / "LICENSE.md").read_text(encoding="utf-8")
    assert "No text of Wikipedia" in " ".join(licence.split())
    second = released(data)
    assert (first.name, second.name) == ("1.0.0", "1.1.0")
    assert not (first / "passages").exists()


@pytest.mark.parametrize(
    ("licence", "changes", "said"),
    [
        ("per subset", {}, r"the licence of wikipedia \(per subset\) does not say that others"),
        ("MIT", {"k": 5}, "--passages 5: wikipedia has 4 documents; ask for fewer"),
        ("MIT", {"ways": ["closed_book"]}, "no way of this run retrieves; add bm25 or dense"),
        (
            "MIT",
            {"without": "data/index/bm25/wikipedia"},
            "bm25/wikipedia: no such index; `longtail run` makes it",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(data, licence, changes, said):
    write_licence(licence)
    Path("data/questions/popqa/popqa.parquet").write_bytes(b"not read")
    with pytest.raises(LongtailError, match=said):
        released(data, **changes)
    assert not Path("out").exists()
