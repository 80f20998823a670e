"""The stage `exposure`: documents with a question's subject and answer, the same whatever parts and workers."""

import gzip
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.evaluation import exposure
from pipelines.questions.published import read_published
from pipelines.sources import mentions
from pipelines.sources.rejects import Rejects

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
    "Bob: writer",
    "none",
]


def question_sets(folder: Path, popqa=POPQA, entityquestions=ENTITYQUESTIONS) -> None:
    texts, strings = pa.string(), pa.list_(pa.string())
    kinds = {"question_id": texts, "subj": texts, "s_aliases": strings, "possible_answers": strings}
    for name, rows in (("popqa", popqa), ("entityquestions", entityquestions)):
        names = [n for n in kinds if name == "popqa" or n != "s_aliases"]
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        columns = {n: pa.array(column, kinds[n]) for n, column in zip(names, columns, strict=True)}
        (folder / "questions" / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / f"questions/{name}/{name}.parquet")


def texts_of_c4(folder: Path, texts=TEXTS, files: int = 2) -> None:
    (folder / "raw/c4").mkdir(parents=True, exist_ok=True)
    for i in range(files):
        lines = "\n".join(t if t.startswith("{") else json.dumps({"text": t}) for t in texts[i::files])
        (folder / f"raw/c4/{i}.json.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def count(folder: Path, name="c4", answered=ANSWERED, workers=1, match="all", max_reject_share=0.05, above=None):
    settings = SimpleNamespace(
        language="en",
        c4=params.C4(sample_mb=1, match=match),
        ingest=params.Ingest(max_reject_share=max_reject_share, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=params.Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu"),
        parts=SimpleNamespace(answered=list(answered)),
    )
    questions, items = ((above or folder) / name for name in ("questions", "entities.parquet"))
    counts = exposure.count_exposure(settings, name, folder / "raw", questions, folder / "out", items)
    found = {}
    for dataset in answered:
        for row in pq.read_table(folder / f"out/{name}/{dataset}.parquet").to_pylist():
            found[row["question_id"]] = (row["subject"], row["answer"], row["together"])
    return found, counts


def test_documents_with_the_subject_the_answer_and_both_are_counted_once_each(tmp_path):
    question_sets(tmp_path)
    texts_of_c4(tmp_path)
    found, counts = count(tmp_path)
    assert found == {
        "1": (2, 3, 1),
        "2": (2, 2, 1),
        "3": (2, 3, 1),
        "4": (0, 2, 0),
        "5": (0, 0, 0),
        "6": (2, 2, 2),
        "P19-1": (1, 1, 1),  # in "New York" too: no name of ours is longer
    }
    size = sum(map(len, TEXTS))
    assert counts == {"documents": 5, "bytes": size, "questions": 7, "together": 5, "rejected": 0}


def test_a_name_inside_a_longer_one_does_not_count_where_the_longest_match(tmp_path):
    question_sets(tmp_path, entityquestions=[("P19-1", "Ada L.", ["York"]), ("P19-2", "Ada", ["New York"])])
    texts_of_c4(tmp_path)
    assert count(tmp_path)[0]["P19-1"] == count(tmp_path)[0]["P19-2"][::-1][:1] * 3 == (1, 1, 1)
    found, _ = count(tmp_path, match="longest")
    assert (found["P19-1"], found["P19-2"]) == ((1, 0, 0), (1, 1, 0))


def test_the_same_bytes_whatever_files_batches_and_workers(tmp_path, monkeypatch):
    question_sets(tmp_path)
    texts_of_c4(tmp_path)
    _, counts = count(tmp_path)
    before = (tmp_path / "out/c4/popqa.parquet").read_bytes()
    monkeypatch.setattr(mentions, "BATCH", 1)
    texts_of_c4(tmp_path, files=1)
    (tmp_path / "raw/c4/1.json.gz").unlink()
    assert count(tmp_path)[1] == counts
    assert (tmp_path / "out/c4/popqa.parquet").read_bytes() == before
    texts_of_c4(tmp_path)
    assert count(tmp_path, workers=2)[1] == counts
    assert (tmp_path / "out/c4/popqa.parquet").read_bytes() == before
    assert list(Path(".longtail/shards").glob("*")) == []


def test_a_killed_run_counts_only_what_is_missing(tmp_path, monkeypatch):
    question_sets(tmp_path)
    texts_of_c4(tmp_path, files=3)
    whole, _ = count(tmp_path)
    read, parts = exposure.documents, []

    def killed(name, part, rejects, media, links):
        parts.append(part.file.name)
        if len(parts) == 2:
            raise KeyboardInterrupt
        return read(name, part, rejects, media, links)

    monkeypatch.setattr(exposure, "documents", killed)
    with pytest.raises(KeyboardInterrupt):
        count(tmp_path)
    assert count(tmp_path)[0] == whole
    assert parts == ["0.json.gz", "1.json.gz", "1.json.gz", "2.json.gz"]


def test_bad_rows_are_named_and_too_many_stop_it(tmp_path):
    question_sets(tmp_path)
    texts_of_c4(tmp_path, [*TEXTS, '{"text": 3}'], files=1)
    with pytest.raises(LongtailError, match=r"0\.json\.gz: 1 of 6 rows rejected"):
        count(tmp_path)
    assert not (tmp_path / "out").exists()
    assert count(tmp_path, max_reject_share=0.5)[1]["rejected.unexpected_layout"] == 1
    [row] = pq.read_table(tmp_path / "out/c4/rejects.parquet").to_pylist()
    assert (row["file"], row["row"]) == ("0.json.gz", 6)


def test_a_page_of_wikipedia_counts_by_its_title_and_what_a_reader_sees(tmp_path):
    question_sets(tmp_path, [("1", "Ada", [], ["Rome"]), ("2", "Ada", [], ["Paris"])], [])
    (tmp_path / "raw/wikipedia").mkdir(parents=True)
    (tmp_path / "raw/wikipedia/pages-articles.xml").write_text(
        """<mediawiki><page><title>Ada</title><ns>0</ns><id>1</id><revision><text>She went to [[Rome|the city]]
        and to ''[[Paris]]''.</text></revision></page></mediawiki>"""
    )
    found, counts = count(tmp_path, "wikipedia", ["popqa"])
    assert found == {"1": (1, 0, 0), "2": (1, 1, 1)}
    assert counts["documents"] == 1


def has(names: list[str], text: str) -> bool:
    """Whether one of the names stands in the text as whole words, by a search name by name."""
    for name in names:
        left = r"(?<![^\W_])" if name[:1].isalnum() else ""
        right = r"(?![^\W_])" if name[-1:].isalnum() else ""
        if name and name in text and re.search(left + re.escape(name) + right, text):
            return True
    return False


def test_real_questions_in_the_real_pile_as_a_plain_loop_counts_them(real, tmp_path):
    import zstandard

    published = read_published(real / "popqa/popQA.tsv", Rejects(0.0)).to_pylist()[::20]
    rows = [(str(row["id"]), row["subj"], row["s_aliases"], row["possible_answers"]) for row in published]
    question_sets(tmp_path, rows, [])
    with (real / "pile/pile_sample.jsonl.zst").open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    texts = [text for text in (json.loads(line)["text"] for line in lines) if text.strip() and len(text) < 8000]
    (tmp_path / "raw/pile").mkdir(parents=True)
    (tmp_path / "raw/pile/short.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    found, counts = count(tmp_path, "pile", ["popqa"])
    assert (counts["documents"], counts["bytes"]) == (len(texts), sum(len(text.encode()) for text in texts))
    for id_, subject, aliases, answers in rows:
        about = [has([subject, *aliases], text) for text in texts]
        answering = [has(answers, text) for text in texts] if any(about) else []
        expected = sum(about), sum(a and b for a, b in zip(about, answering, strict=False))
        assert (found[id_][0], found[id_][2]) == expected, id_
    assert counts["together"] >= 10


def wiki_page(number: int, title: str, text: str, redirect: bool = False) -> str:
    return (
        f"<page><title>{title}</title><ns>0</ns><id>{number}</id>{'<redirect/>' * redirect}<revision>"
        f"<text>{text}</text></revision></page>"
    )


def test_the_articles_that_link_to_the_subjects_article_are_counted_in_the_same_pass(tmp_path):
    question_sets(tmp_path, [("1", "Ada", [], []), ("2", "Bo", [], []), ("3", "Cy", [], [])], [("4", "Ada", [])])
    popqa, others = (tmp_path / f"questions/{name}/{name}.parquet" for name in ANSWERED)
    titles = ["Ada (poet)", "Bo", None]  # the third is the item's
    uris = [f"http://www.wikidata.org/entity/Q{n}" for n in (1, 2, 3)]
    table = pq.read_table(popqa).append_column("s_wiki_title", [titles]).append_column("s_uri", [uris])
    pq.write_table(table, popqa)
    pq.write_table(pq.read_table(others).append_column("s_uri", [uris[:1]]), others)
    items = pa.table({"qid": [1, 2, 3], "wiki_title": ["Poet Ada", "other", "Cy"]})
    pq.write_table(items, tmp_path / "entities.parquet")
    pages = [
        wiki_page(1, "Ada (poet)", "[[Cy]]"),
        wiki_page(2, "Poet Ada", "#REDIRECT [[Ada (poet)]]", redirect=True),
        wiki_page(3, "Cy", "[[Poet Ada]] [[Ada (poet)|Ada]]"),
        wiki_page(4, "Rome", "[[ada (poet)]]"),
    ]
    found = []
    for cuts in ([0, 4], [0, 1, 2, 4]):
        folder = tmp_path / f"{len(cuts)}/raw/wikipedia"
        folder.mkdir(parents=True)
        for begin, end in itertools.pairwise(cuts):
            text = f"<mediawiki>{''.join(pages[begin:end])}</mediawiki>"
            (folder / f"pages-articles{begin}.xml").write_text(text)
        count(tmp_path / f"{len(cuts)}", "wikipedia", workers=len(cuts) // 2, above=tmp_path)
        out = tmp_path / f"{len(cuts)}/out/wikipedia"
        found.append([pq.read_table(out / f"{name}.parquet")["links"].to_pylist() for name in ANSWERED])
    assert found == [[[2, None, 1], [2]]] * 2


def test_passages_have_no_links(tmp_path):
    question_sets(tmp_path)
    (tmp_path / "raw/wikipedia").mkdir(parents=True)
    (tmp_path / "raw/wikipedia/psgs_w100.tsv").write_text('id\ttext\ttitle\n1\t"a [[poet]]"\tAda\n')
    count(tmp_path, "wikipedia")
    links = pq.read_table(tmp_path / "out/wikipedia/popqa.parquet")["links"]
    assert (links.type, links.null_count) == (pa.int64(), len(POPQA))
