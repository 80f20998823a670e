"""TREC runs are joined with the topics and passages that they name by ids."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.sources.passage_files import read_questions_with_passages
from pipelines.sources.rejects import Rejects

# The ids of three of 120 passages, by rank, for two questions. Lines of a run may have any order.
PASSAGES = 120
RUN = """0 Q0 17 1 15.218000 Anserini
1 Q0 3 2 9.5 Anserini
0 Q0 40 2 12.150800 Anserini
1 Q0 17 1 11.25 Anserini
"""
TOPICS = {"0": 'who wrote "Velm"', "1": "where is Mira's town"}


def text(number: int) -> str:
    return f'The "{number}th" passage.'


def write_psgs(folder: Path) -> None:
    """DPR's psgs_w100.tsv: quotes are doubled in quoted cells."""
    with (folder / "psgs_w100.tsv").open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["id", "text", "title"])
        for number in range(1, PASSAGES + 1):
            table.writerow([number, text(number), f"T{number}"])


def write_flashrag(folder: Path) -> None:
    """FlashRAG's corpus: the title is the first line of the contents."""
    with (folder / "wiki18_100w.jsonl").open("w") as file:
        for number in range(1, PASSAGES + 1):
            record = {"id": str(number), "contents": f'"T{number}"\n{text(number)}'}
            file.write(json.dumps(record) + "\n")


def write_beir(folder: Path) -> None:
    numbers = range(1, PASSAGES + 1)
    columns = {"_id": numbers, "title": map("T{}".format, numbers), "text": map(text, numbers)}
    table = pa.table({name: list(values) for name, values in columns.items()})
    pq.write_table(table, folder / "corpus.parquet")


def by_number(folder: Path) -> None:
    """Anserini's topics: an id, a tab and a question."""
    lines = [f"{number}\t{question}\n" for number, question in TOPICS.items()]
    (folder / "topics.nq.tsv").write_text("".join(lines))


def of_dpr(folder: Path) -> None:
    """DPR's questions, which have no ids."""
    with (folder / "nq-test.qa.csv").open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t")
        table.writerows([question, str(["Velm", "Mira's"])] for question in TOPICS.values())


def question_set(folder: Path) -> None:
    rows = [{"id": int(i), "question": q, "answer": ["Velm"]} for i, q in TOPICS.items()]
    (folder / "nq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def table_of_questions(folder: Path) -> None:
    with (folder / "popQA.tsv").open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t")
        table.writerow(["id", "question", "possible_answers"])
        table.writerows([i, question, '["Velm"]'] for i, question in TOPICS.items())


def saved(run: str, *writers) -> Path:
    """A folder with a run in its folder `bm25`, which has what the writers write too."""
    folder = Path("raw/retrieval/bm25")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.dpr.nq-test.bm25.trec").write_text(run)
    for write in writers:
        write(folder)
    return folder.parent


def read(folder: Path, max_share: float = 1.0, **options):
    rejects = Rejects(max_share)
    return list(read_questions_with_passages(folder, rejects, **options)), rejects


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("write_topics", "write_passages"),
    [
        (by_number, write_psgs),
        (of_dpr, write_psgs),
        (question_set, write_flashrag),
        (table_of_questions, write_beir),
    ],
)
def test_ids_become_questions_and_passages(write_topics, write_passages):
    folder = saved(RUN, write_topics, write_passages)
    (first, second), rejects = read(folder, answered=write_topics != by_number)
    assert [first.text, second.text] == [*TOPICS.values()]
    assert first.id == "bm25/run.dpr.nq-test.bm25/1"
    assert first.answers[:1] == ([] if write_topics == by_number else ["Velm"])
    expected = [("T17", text(17), "17", 15.218), ("T40", text(40), "40", 12.1508)]
    assert first.passages == expected
    assert [(passage.id, passage.score) for passage in second.passages] == [
        ("17", 11.25),
        ("3", 9.5),
    ]
    assert (rejects.reasons(), rejects.read) == ({}, 6), "lines and questions"


def test_a_corpus_of_the_run_has_the_passages():
    folder = saved(RUN, by_number)
    corpus = Path("raw/wikipedia")
    corpus.mkdir()
    write_psgs(corpus)
    (first, _), _ = read(folder, answered=False, corpus=corpus)
    assert first.passages[0].title == "T17"


BAD_LINES = {
    "0 Q0 900 3 2.5 Anserini": ("unknown passage", "900"),
    "77 Q0 17 3 2.5 Anserini": ("no topic", "77"),
    "0 Q0 18 2 2.5 Anserini": ("rank twice", "0: 2"),
    "0 17 4": ("wrong columns", "0 17 4; expected qid Q0 docid rank score tag"),
    "0 Q0 18 5 high Anserini": ("wrong columns", "0 Q0 18 5 high Anserini; expected"),
}


def test_bad_lines_are_named():
    folder = saved(RUN + "\n".join(BAD_LINES), by_number, write_psgs)
    questions, rejects = read(folder, answered=False)
    assert [len(question.passages) for question in questions] == [2, 2]
    rows = sorted(rejects.rows)
    for (file, row, reason, detail), number, expected in zip(
        rows, range(5, 10), BAD_LINES.values(), strict=True
    ):
        assert (file, row, reason) == ("run.dpr.nq-test.bm25.trec", number, expected[0])
        assert detail.startswith(expected[1])
    rejects.max_share = 0.05
    with pytest.raises(LongtailError, match=r"5 of 11 rows rejected.*the first: row 6, no topic"):
        rejects.check()


def articles(folder: Path) -> None:
    (folder / "articles.jsonl").write_text('{"title": "T", "text": "words"}\n')


def damaged(folder: Path) -> None:
    """A Parquet file of which a page in the middle is overwritten."""
    write_beir(folder)
    content = (folder / "corpus.parquet").read_bytes()
    (folder / "corpus.parquet").write_bytes(content[:40] + b"x" * 400 + content[440:])


@pytest.mark.parametrize(
    ("writers", "said"),
    [
        ([write_psgs], r"bm25\.trec: a TREC run, which has no questions; expected its topics"),
        ([by_number], r"bm25\.trec: a TREC run, which has no texts; expected its passages"),
        ([by_number, articles], r"articles\.jsonl: texts without ids"),
        ([by_number, damaged], r"corpus\.parquet: damaged"),
        ([by_number, write_psgs], "no answers"),
    ],
)
def test_what_a_run_lacks_is_said_in_a_line(writers, said):
    with pytest.raises(LongtailError, match=said) as error:
        read(saved(RUN, *writers), 0.05)
    assert "\n" not in str(error.value)


def test_deep_ranks_are_left_out():
    """A run of a thousand passages for each question would fill the memory with texts."""
    lines = [f"0 Q0 {rank} {rank} {-rank} Anserini\n" for rank in range(1, 121)]
    (question,), rejects = read(saved("".join(lines), by_number, write_psgs), answered=False)
    assert [passage.id for passage in question.passages] == [str(n) for n in range(1, 101)]
    assert rejects.metrics()["skipped.deep_rank"] == 20
