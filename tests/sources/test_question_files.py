"""Questions in every layout that they are published in, and what happens to bad records and
files.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fetching import saved

from pipelines.errors import LongtailError
from pipelines.sources.passage_files import read_questions_with_passages
from pipelines.sources.question_files import Question, read_questions
from pipelines.sources.rejects import Rejects

NQ = [
    {"question": "who is it ", "answer": ["Number 1", "the one"]},
    {"question": "when", "answer": ["1789"]},
]
FLASHRAG = [
    {"id": f"t_{i}", "question": row["question"], "golden_answers": row["answer"]}
    for i, row in enumerate(NQ)
]
TRIVIA = [
    {
        "question": row["question"],
        "question_id": f"tc_{i}",
        "question_source": "",
        "entity_pages": {"title": []},
    }
    | {
        "answer": {
            "aliases": [*row["answer"], "One"],
            "normalized_aliases": ["x"],
            "value": row["answer"][-1],
        }
    }
    for i, row in enumerate(NQ)
]
ANSWERS = [["Number 1", "the one"], ["1789"]]
TRIVIA_ANSWERS = [["the one", "Number 1", "One"], ["1789", "One"]]  # the value first, each once


def read(folder: Path, rejects: Rejects | None = None) -> list[Question]:
    return list(read_questions(folder, rejects or Rejects(0)))


def write(path: Path, rows: list[dict], lines: bool = True) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path.parent
    return saved(
        path, "".join(json.dumps(row) + "\n" for row in rows) if lines else json.dumps(rows)
    ).parent


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("dev-00000-of-00001.parquet", True),
        ("dev.jsonl", True),
        ("dev.json", True),
        ("dev.json", False),
    ],
)
@pytest.mark.parametrize(
    ("rows", "answers"), [(NQ, ANSWERS), (FLASHRAG, ANSWERS), (TRIVIA, TRIVIA_ANSWERS)]
)
def test_every_layout_gives_the_same_questions(tmp_path, name, lines, rows, answers):
    stem = name.partition(".")[0]
    expected = [(f"{stem}/1", "who is it", answers[0]), (f"{stem}/2", "when", answers[1])]
    assert read(write(tmp_path / name, rows, lines)) == expected


def test_bad_records_are_kept_with_their_row_and_reason(tmp_path):
    text = '{"question": "why"}\n\nnot json\n{"answer": ["x"]}\n{"question": " ", "answer": ["x"]}\n["why", "x"]\n'
    text += f'{{"question": "{"who " * 2501}", "answer": ["x"]}}\n'
    (tmp_path / "a.jsonl").write_bytes(text.encode() + b'{"question": "\xff", "answer": "x"}\n')
    # TriviaQA's test split on the Hub
    hidden = {"question": "who", "answer": {"aliases": [], "value": "<unk>"}}
    write(tmp_path / "b.parquet", [hidden, TRIVIA[0]])
    rejects = Rejects(1.0)
    assert [question.id for question in read(tmp_path, rejects)] == ["b/2"]
    assert rejects.read == 9  # an empty line is not a record
    reasons = [
        "no answers",
        "",
        "not JSON",
        "no question",
        "no question",
        "not an object",
        "too long",
        "not JSON",
    ]
    expected = [("a.jsonl", row, reason) for row, reason in enumerate(reasons, start=1) if reason]
    assert [row[:3] for row in rejects.rows] == [*expected, ("b.parquet", 1, "no answers")]
    assert json.loads(rejects.rows[-1][3])["question"] == "who"


def test_a_question_that_two_files_have_counts_once(tmp_path, capsys):
    """One that a file asks twice stays, unless its id is the same too."""
    twice = [*FLASHRAG, FLASHRAG[0] | {"id": "t_9"}, FLASHRAG[1]]
    write(tmp_path / "test.jsonl", twice)
    saved(tmp_path / "test.jsonl.gz", "".join(json.dumps(row) + "\n" for row in twice))
    write(tmp_path / "dev.jsonl", [*NQ, {"question": "when", "answer": ["1848"]}])
    rejects = Rejects(0)
    ids = [question.id for question in read(tmp_path, rejects)]
    assert ids == ["dev/1", "dev/2", "dev/3"]
    assert rejects.skipped == {"repeated_record": 8}
    assert f"4 records of {tmp_path}/test.jsonl.gz were read before" in capsys.readouterr().out
    (tmp_path / "dev.jsonl").unlink()
    (tmp_path / "test.jsonl.gz").unlink()
    assert [question.id for question in read(tmp_path)] == ["test/1", "test/2", "test/3"]


def test_shards_of_a_table_may_ask_a_question_twice(tmp_path):
    for shards in (
        ("test-00000-of-00002.parquet", "test-00001-of-00002.parquet"),
        ("0000.parquet", "0001.parquet"),
    ):
        folder = tmp_path / shards[0]
        folder.mkdir()
        for shard in shards:
            write(folder / shard, NQ)
        assert len(read(folder)) == 4


def test_a_file_without_answers_is_refused_by_name(tmp_path):
    hidden = [row | {"golden_answers": []} for row in FLASHRAG]
    write(tmp_path / "dev.jsonl", NQ * 100)
    write(tmp_path / "test.jsonl", hidden)
    with pytest.raises(
        LongtailError,
        match=r"/test\.jsonl: none of its 2 records has answers, .* leave it out of fetch\.files$",
    ):
        read(tmp_path, Rejects(0.5))


def test_bad_files_are_named(tmp_path):
    for name, content, said in [
        ("a.json", b'[{"question": "cut', "a.json: not JSON"),
        ("b.json", b"[]", "b.jsonl: .* same ids as those of b.json;"),
    ]:
        write(tmp_path / "b.jsonl", NQ)
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LongtailError, match=said):
            read(tmp_path)
        (tmp_path / name).unlink()


def read_passages(folder: Path, rows: list) -> tuple[list, Rejects]:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    rejects = Rejects(1.0)
    return list(read_questions_with_passages(folder, rejects)), rejects


def test_passages_are_read_from_both_layouts(tmp_path):
    """Bad lines are kept with their reason."""
    good = {
        "question": " Who? ",
        "answers": ["Mira", ""],
        "ctxs": [{"title": "T", "text": " a\n b "}, {"title": "x"}],
    }
    other = {
        "question": "What?",
        "data_source": "popqa",
        "ground_truth": ["x"],
        "context": ["plain", {"text": "c"}],
    }
    bad = [
        "{",
        "[]",
        *(good | {"question": question} for question in (3, "Who? " * 2001)),
        good | {"answers": [""]},
    ]
    (first, second), rejects = read_passages(
        tmp_path, [*bad, good | {"ctxs": [{"title": "x"}]}, good, other]
    )
    assert first[:5] == ("a/7", "", "Who?", ["Mira"], [("T", " a\n b ", "", None)])
    expected = ("a/8", "popqa", "What?", ["x"], [("", "plain", "", None), ("", "c", "", None)])
    assert second[:5] == expected
    reasons = ["not JSON", "not an object", "no question", "too long", "no answers", "no passages"]
    assert [row[:3] for row in rejects.rows] == [
        ("a.jsonl", n, reason) for n, reason in enumerate(reasons, 1)
    ]
    assert rejects.read == 8


ONE, TWO = ("Velm", "A harbour.", "", None), ("Mira", "A town: small.", "", None)
GIVEN = {"title": "Velm", "text": "A harbour."}, {"title": "Mira", "text": "A town: small."}
SCORED = [
    {"id": i, "score": score} | given
    for i, score, given in zip((3, "4"), ("1.5", 0.5), GIVEN, strict=True)
]
WITH_SCORES = [(*ONE[:2], "3", 1.5), (*TWO[:2], "4", 0.5)]
LINES = ["Velm\nA harbour.", "Mira\nA town: small."]


@pytest.mark.parametrize("name", ["given.jsonl", "given.parquet"])
@pytest.mark.parametrize(
    ("record", "passages"),
    [
        ({"question": "Who?", "ctxs": [SCORED[0], {"id": "4", "score": "0.5"} | GIVEN[1]]}, WITH_SCORES),
        ({"query": "Who?", "contexts": GIVEN}, [ONE, TWO]),
        ({"question": "Who?", "output": {"pred": "x", "retrieval_result": GIVEN}}, [ONE, TWO]),
        ({"question": "Who?", "retrieval_result": [{"contents": f'"{line[:4]}"{line[4:]}'} for line in LINES]}, [ONE, TWO]),
        ({"input": "Who?", "output": [{"answer": "x", "provenance": GIVEN}]}, [ONE, TWO]),
        ({"question": "Who?", "docs": LINES, "doc_scores": [1.5, 0.5]}, [(*ONE[:3], 1.5), (*TWO[:3], 0.5)]),
        ({"question": "Who?", "docs": LINES, "doc_scores": [1.5]}, [ONE, TWO]),
        ({"question": "Who?", "passages": [f"Document 1 (Title: {t['title']}):  {t['text']}" for t in GIVEN]}, [TWO, ONE]),
        ({"user_input": "Who?", "retrieved_contexts": ["A town: small.", ""]}, [("", *TWO[1:])]),
    ],
)  # fmt: skip
def test_the_passages_of_every_system_are_read(tmp_path, name, record, passages):
    record = json.loads(json.dumps(record))
    for passage in record.get("ctxs", ()) if name.endswith(".parquet") else ():
        # a column has one type
        passage |= {"id": str(passage["id"]), "score": str(passage["score"])}
    (read,) = read_questions_with_passages(
        write(tmp_path / name, [record]), Rejects(0.0), answered=False
    )
    assert (read.text, read.passages) == ("Who?", passages)


def test_a_file_is_read_by_its_content_whatever_its_ending(tmp_path):
    good = {"question": "Who?", "answers": ["Mira"], "ctxs": [{"title": "T", "text": "a"}]}
    saved(tmp_path / "folder/dpr.txt", json.dumps([good]))
    saved(tmp_path / "table.csv", "question,answers\n")
    rejects = Rejects(1.0)
    assert [question.id for question in read_questions_with_passages(tmp_path, rejects)] == [
        "folder/dpr/1"
    ]
    assert rejects.reasons() == {"not JSON": 1}
