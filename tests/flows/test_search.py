"""`longtail search`, called as people and scripts call it."""

import io
import json
import re
from contextlib import redirect_stdout
from types import SimpleNamespace

import hostile
import json_keys
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked_run import write_project
from profile_values import values_of

from flows.commands import asking
from pipelines.answering import given_passages
from pipelines.foreign import imported_passages
from pipelines.params import params
from pipelines.retrieval import passage_layouts

TEXTS = [
    "Velm is the capital of Norland. " * 20,
    "Mira Tosh was born in Velm.",
    "A harbour in the north, 港, \x1b[2J.",
]


def indexed(folder, monkeypatch, titles, texts):
    """Make `folder` a project that has one index: BM25 over Wikipedia."""
    documents = []
    for number, (title, text) in enumerate(zip(titles, texts, strict=True), start=1):
        documents.append({"id": f"wikipedia:{number}:0", "title": title, "text": text})
    write_project(folder, values_of("sample"), documents)
    monkeypatch.chdir(folder)


@pytest.fixture
def longtail(tmp_path, monkeypatch, call):
    """The command in such a project."""
    titles = [
        "Velm",
        "Mira Tosh, an author whose name is so long that it does not fit into one line",
        None,
    ]
    indexed(tmp_path, monkeypatch, titles, TEXTS)
    monkeypatch.setenv("COLUMNS", "80")
    return call


def test_the_best_documents_with_scores_and_titles_on_80_columns(longtail):
    code, said, _ = longtail("search", "born in Velm", "--retriever", "bm25")
    lines = said.splitlines()
    assert (code, len(lines)) == (0, 8), "the third document has none of the words"
    assert max(map(len, lines)) <= 80
    assert "Mira Tosh, an author" in lines[0]
    assert "[wikipedia:2:0]" in lines[1]
    assert lines[2].strip() == TEXTS[1]
    assert lines[3].split()[::2] == ["2", "Velm"]
    assert float(lines[0].split()[1]) > float(lines[3].split()[1]) > 0
    assert said.endswith(" …\n")  # of a long text, the beginning


def test_json_for_scripts(longtail, root, tmp_path):
    code, said, _ = longtail("search", "港", "--retriever", "bm25", "--json", "-k", "1")
    documented = json_keys.documented(root, "search")
    assert set(json_keys.keys_of(json.loads(said))) == documented
    (hit,) = json.loads(said)
    assert (code, hit["id"], hit["title"], hit["text"]) == (0, "wikipedia:3:0", "", TEXTS[2])
    assert hit["score"] > 0
    (tmp_path / "data/corpus/wikipedia/docs.parquet").unlink()
    code, _, error = longtail("search", "Velm", "--retriever", "bm25")
    assert (code, "docs.parquet: no such file" in error) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["Velm", "--retriever", "hybrid"], 1, "dense/dense/wikipedia: no such index; `longtail run` makes it"),
        (["Velm", "--corpus", "pile"], 1, "/pile: no such index"),
        (["Velm", "--corpus", "c4"], 1, "--corpus c4: this run has no such corpus, expected one of its own: wikipedia"),
        (["Velm", "--retriever", "bm52"], 1, "--retriever bm52: expected bm25, dense, lsr or hybrid, or as"),
        ([" ", "--retriever", "bm25"], 1, "error: the text is empty"),
        (["zzz", "--retriever", "bm25"], 1, "error: BM25 finds none of the words 'zzz' in wikipedia"),
        (["the of", "--retriever", "bm25"], 1, "it leaves out common words such as 'the'"),
        (["zzz " * 1000, "--retriever", "bm25"], 1, "none of the words 'zzz zzz"),
        (["Velm", "-k", "0"], 2, "greater than or equal to 1"),
        ([], 1, "no text, expected some words, or --questions FILE --out FILE"),
        (["Velm", "--out", "x.jsonl"], 1, "expected a text alone, or --questions FILE and --out"),
        (["--questions", "params.yaml"], 1, "expected a text alone, or --questions FILE and --out"),
        (["-q", "none.csv", "--out", "x.jsonl", "--retriever", "bm25"], 1, "none.csv: no such file"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said_in_one_line_with_an_exit_code(longtail, words, code, said):
    ended, out, err = longtail("search", *words)
    assert (ended, out) == (code, "")
    assert said in err
    assert code == 2 or len(err.splitlines()[-1]) < 200


@pytest.mark.parametrize("layout", [layout.value for layout in asking.Layout])
def test_given_reads_the_file_of_every_layout_back(longtail, layout, tmp_path, capsys):
    """The passages of each question are those that a search for its text finds."""
    asked = {"a": "Who was born in Velm?", "b": "港?", "c": "zzz"}
    answers = [['Mira "M" Tosh', "Tosh"], ["港"], ["none"]]
    table = {"question_id": [*asked], "question": [*asked.values()], "possible_answers": answers}
    questions = tmp_path / "data/questions/popqa/popqa.parquet"
    questions.parent.mkdir(parents=True)
    pq.write_table(pa.table(table), questions)
    file = tmp_path / "data/raw/retrieval/given.jsonl"
    words = ["--questions", questions, "--out", file, "--layout", layout, "--retriever", "bm25"]
    code, said, _ = longtail("search", *words, "-k", "2")
    assert (code, said.splitlines()[-1]) == (0, "1 of them have no document with a word of theirs")

    settings = SimpleNamespace(
        ingest=params.Ingest(max_reject_share=0.5, memory_gb=1.0),
        parts=SimpleNamespace(answered=["popqa"]),
        ways=["given"],
    )
    imported_passages.import_passages(settings, "retrieval")
    assert "2 of 2 rows joined by id = question_id" in capsys.readouterr().out
    given = given_passages.open_passages("given", tmp_path / "data")
    hits = asking.open_corpus("wikipedia", "bm25", 2)(list(asked.values()))
    assert [len(passages) for passages in hits] == [2, 1, 0]
    for question_id, passages in zip(asked, hits[:2], strict=False):
        rows, scores = given.search([question_id], len(passages))
        read = given.read(rows)
        found = zip(*(column[0] for column in read), scores[0], strict=True)
        assert [*found] == [
            (hit["id"], hit["title"], hit["text"], hit["score"]) for hit in passages
        ]


def test_the_command_knows_every_layout():
    assert [layout.value for layout in asking.Layout] == [*passage_layouts.LAYOUTS]


def test_hostile_titles_and_texts_are_harmless_on_any_terminal(tmp_path, monkeypatch, call):
    texts = [f"{label} harbour {label}" for label in hostile.LABELS]
    indexed(tmp_path, monkeypatch, hostile.LABELS, texts)
    for encoding in ("utf-8", "ascii"):
        for words in ([], ["--json"]):
            with redirect_stdout(
                io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
            ) as out:
                code, _, error = call(
                    "search", "harbour", "--retriever", "bm25", "-k", "99", *words
                )
            assert (code, error) == (0, "")
            said = out.buffer.getvalue().decode(encoding)
            assert not re.search(hostile.STEERING, said)
            if words and encoding == "utf-8":
                assert {hit["title"] for hit in json.loads(said)} == set(hostile.LABELS)
