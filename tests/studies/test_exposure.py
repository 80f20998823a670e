"""The stage `exposure`: documents with a question's subject and answer, the same whatever parts and
workers."""

import gzip
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.params import params
from pipelines.sources import mentions
from pipelines.studies import exposure

pytestmark = pytest.mark.usefixtures("workplace")

ANSWERED = ("popqa", "entityquestions")
POPQA = [  # id, subject, its aliases, answers
    ("1", "Ada", ["Ada L."], ["poet", "writer"]),
    ("2", "Ada", ["Ada L."], ["Bob"]),
    ("3", "Bob", [], ["poet", "writer"]),
    ("4", "Nobody", [], ["poet"]),
    ("5", None, [], []),
    ("6", "poet", [""], ["poet"]),  # about itself
]
ENTITYQUESTIONS = [("P19-1", "Ada L.", ["York"])]
TEXTS = [
    "Ada is a poet. Ada is a poet and a writer.",
    "Ada L. met Bob in New York.",
    "Bobby is a poet",
]
TEXTS += ["Bob: writer", "none"]


def question_sets(folder: Path, popqa=POPQA, entityquestions=ENTITYQUESTIONS) -> None:
    texts, strings = pa.string(), pa.list_(pa.string())
    kinds = {"question_id": texts, "subj": texts, "s_aliases": strings, "possible_answers": strings}
    for name, rows in (("popqa", popqa), ("entityquestions", entityquestions)):
        names = [n for n in kinds if name == "popqa" or n != "s_aliases"]
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        columns = {n: pa.array(column, kinds[n]) for n, column in zip(names, columns, strict=True)}
        (folder / "questions" / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / f"questions/{name}/{name}.parquet")


def texts_of_c4(folder: Path, files: int = 2) -> None:
    (folder / "raw/c4").mkdir(parents=True, exist_ok=True)
    for i in range(files):
        lines = "\n".join(json.dumps({"text": t}) for t in TEXTS[i::files])
        (folder / f"raw/c4/{i}.json.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def count(folder: Path, name="c4", answered=ANSWERED, workers=1):
    settings = SimpleNamespace(
        language="en",
        c4=params.C4(sample_mb=1),
        ingest=params.Ingest(max_reject_share=0.5, memory_gb=1.0),
        compute=params.Compute(
            threads=1, workers=workers, executor="local", dask=None, device="cpu"
        ),
        parts=SimpleNamespace(answered=list(answered)),
    )
    counts = exposure.count_exposure(settings, name, folder)
    found = {}
    for dataset in answered:
        for row in pq.read_table(folder / f"exposure/{name}/{dataset}.parquet").to_pylist():
            found[row["question_id"]] = (row["subject"], row["answer"], row["together"])
    return found, counts


def test_documents_with_the_subject_are_counted_once(tmp_path, monkeypatch):
    """So are those with the answer, and with both."""
    question_sets(tmp_path)
    texts_of_c4(tmp_path)
    found, counts = count(tmp_path)
    assert [*found] == ["1", "2", "3", "4", "5", "6", "P19-1"]
    of_popqa = [(2, 3, 1), (2, 2, 1), (2, 3, 1), (0, 2, 0), (0, 0, 0), (2, 2, 2)]
    assert [*found.values()] == [*of_popqa, (1, 1, 1)], (
        "York is in New York too: no name of ours is longer"
    )
    assert counts == {"questions": 7, "together": 5, "rejected": 0}
    before = (tmp_path / "exposure/c4/popqa.parquet").read_bytes()
    monkeypatch.setattr(mentions, "BATCH_CHARS", 1)
    texts_of_c4(tmp_path, files=1)
    lines = json.dumps({"text": 3}) + "\n"
    (tmp_path / "raw/c4/1.json.gz").write_bytes(gzip.compress(lines.encode()))
    assert count(tmp_path)[1] == counts | {"rejected": 1, "rejected.unexpected_layout": 1}
    assert (tmp_path / "exposure/c4/popqa.parquet").read_bytes() == before
    [row] = pq.read_table(tmp_path / "exposure/c4/rejects.parquet").to_pylist()
    assert (row["file"], row["row"]) == ("1.json.gz", 1)
    assert list(Path(".longtail/work").glob("*")) == []


def write_pages(folder: Path, pages: list[tuple[str, str]], number: int = 0) -> None:
    """A dump of articles, (title, text) each."""
    texts = []
    for i, (title, text) in enumerate(pages, start=number):
        redirect = "<redirect/>" if text.startswith("#REDIRECT") else ""
        texts.append(
            f"<page><title>{title}</title><ns>0</ns><id>{i}</id>{redirect}"
            f"<revision><text>{text}</text></revision></page>"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"pages-articles{number}.xml").write_text(f"<mediawiki>{''.join(texts)}</mediawiki>")


def test_a_page_of_wikipedia_counts_by_what_a_reader_sees(
    tmp_path,
):
    """It counts by its title too; passages have no links."""
    question_sets(tmp_path, [("1", "Ada", [], ["Rome"]), ("2", "Ada", [], ["Paris"])], [])
    write_pages(
        tmp_path / "raw/wikipedia",
        [("Ada", "She went to [[Rome|the city]]\n and to ''[[Paris]]''.")],
    )
    assert count(tmp_path, "wikipedia", ["popqa"])[0] == {"1": (1, 0, 0), "2": (1, 1, 1)}
    (tmp_path / "raw/wikipedia/pages-articles0.xml").unlink()
    (tmp_path / "raw/wikipedia/psgs_w100.tsv").write_text('id\ttext\ttitle\n1\t"a [[poet]]"\tAda\n')
    count(tmp_path, "wikipedia")
    links = pq.read_table(tmp_path / "exposure/wikipedia/popqa.parquet")["links"]
    assert (links.type, links.null_count) == (pa.int64(), 2)


def test_linking_articles_are_counted_in_the_same_pass(tmp_path):
    """Also where parts are counted by two processes."""
    question_sets(
        tmp_path,
        [("1", "Ada", [], []), ("2", "Bo", [], []), ("3", "Cy", [], [])],
        [("4", "Ada", [])],
    )
    popqa, others = (tmp_path / f"questions/{name}/{name}.parquet" for name in ANSWERED)
    titles = ["Ada (poet)", "Bo", None]  # the third is the item's
    uris = [f"http://www.wikidata.org/entity/Q{n}" for n in (1, 2, 3)]
    table = (
        pq.read_table(popqa).append_column("s_wiki_title", [titles]).append_column("s_uri", [uris])
    )
    pq.write_table(table, popqa)
    pq.write_table(pq.read_table(others).append_column("s_uri", [uris[:1]]), others)
    items = pa.table({"qid": [1, 2, 3], "wiki_title": ["Poet Ada", "other", "Cy"]})
    (tmp_path / "knowledge/wikidata").mkdir(parents=True)
    pq.write_table(items, tmp_path / "knowledge/wikidata/entities.parquet")
    pages = [("Ada (poet)", "[[Cy]]"), ("Poet Ada", "#REDIRECT [[Ada (poet)]]")]
    pages += [("Cy", "[[Poet Ada]] [[Ada (poet)|Ada]]"), ("Rome", "[[ada (poet)]]")]
    for cuts in ([0, 4], [0, 1, 2, 4]):
        for begin, end in itertools.pairwise(cuts):
            write_pages(tmp_path / "raw/wikipedia", pages[begin:end], begin)
        count(tmp_path, "wikipedia", workers=len(cuts) // 2)
        files = [tmp_path / f"exposure/wikipedia/{name}.parquet" for name in ANSWERED]
        found = [pq.read_table(file)["links"].to_pylist() for file in files]
        assert found == [[2, None, 1], [2]]
