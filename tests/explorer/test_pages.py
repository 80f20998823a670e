"""What pages say in words: ranges, marks."""

import copy
import dataclasses
import html
import re
import shutil
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import methods
from pipelines.explorer import one_question, pages, slices
from pipelines.explorer.reasons import READ
from pipelines.explorer.run import Run
from pipelines.explorer.slices import Slice
from pipelines.intervals import Interval
from pipelines.pages import drawing


@pytest.mark.parametrize(
    ("text", "answers", "marks"),
    [
        ("In New York City.", ["York", "New York", "New York City"], ["New York City"]),
        ("W is in New York, W. too", ["W"], ["W", "W"]),
        ("a POET, poets", ["poet"], ["POET"]),
        ("C++ (x) [y]", ["C++", "[y]", "x) ["], ["C++", "[y]"]),
        ("nothing here", ["", "  "], []),
        (unicodedata.normalize("NFD", "Ødegård café"), ["café"], ["café"]),
    ],
)
def test_answers_are_marked_where_they_stand_whole(text, answers, marks):
    parts = pages.marked(text, answers)
    assert "".join(parts) == unicodedata.normalize("NFC", text)
    assert parts[1::2] == marks


@pytest.fixture(scope="module")
def namesake(answered, tmp_path_factory) -> Run:
    """The run, but its documents say what was answered wrongly instead of what is right."""

    def put(file, name, texts):
        table = pq.read_table(file)
        pq.write_table(
            table.set_column(table.column_names.index(name), name, pa.array(texts(table))), file
        )

    data = shutil.copytree(answered.data, tmp_path_factory.mktemp("namesake") / "data")
    put(
        data / "corpus/wikipedia/docs.parquet",
        "text",
        lambda table: ["It is ANOTHER."] * len(table),
    )
    for file in (data / "predictions/popqa").rglob("*.parquet"):
        wrong = "elsewhere" if file.stem == "closed_book" else "another"
        put(file, "prediction", lambda table, wrong=wrong: [wrong] * len(table))
    return Run(data, answered.params)


def test_a_question_begins_with_its_reason(namesake):
    """And the passage that the chosen method read comes first."""
    table = pq.read_table(namesake.answers("popqa")["tiny"]["dense"]).to_pylist()
    (first, *_) = (row for row in table if row["doc_is_namesake"] and not row["correct"])
    page = pages.question(
        namesake, {"id": first["question_id"], "method": "dense", "cell": "wrong"}
    )
    reason = re.search(r'<p class="reason">(.*?)</p>', page, re.DOTALL)[1]
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", "", reason)).split())
    assert words.startswith(
        "✗ wrong With dense the model read the page of a namesake, A (film), "
        "which does not hold the answer, and answered another, which stands there. "
    )
    assert words.endswith("it answered elsewhere, which is wrong.")
    places = [page.index(text) for text in ("<h1>", reason, "best of ", '<table class="answers')]
    assert places == sorted(places)
    assert "dense" in page[places[2] : places[3]]
    assert re.search(r"\d+ of \d+ questions: wrong with dense</span>", page)


def test_the_answers_that_are_compared_are_marked(namesake):
    page = pages.question(namesake, {"id": "q0000", "lm": "tiny", "method": "dense"})
    rows = re.findall(
        r'<tr( class="chosen")?><th scope="row"><span[^>]+>([^<]+)</span></th>\n<td class="answer"',
        page,
    )
    assert [method for chosen, method in rows if chosen] == ["without retrieval", "dense"]
    assert '<span class="method of-dense">dense</span>' in page
    colour = drawing.METHOD_STYLES["dense"].colour
    assert f".of-dense {{ --method: {colour}; }}" in pages.css(), "the colour of the report"


def test_namesakes_are_told_apart(namesake, answered):
    """An ensemble says that another of its documents has the answer."""
    assert "subject Q100" in pages.question(answered, {"id": "q0100"})
    assert re.search(r"<small>[^<]+\(P\d+\), Q\d+</small>", pages.questions(answered, {}))
    assert pages.range_of("1000-3162") == "1,000 to 3,162"
    for run, said in ((namesake, "yes, in another of its"), (answered, "yes</td>")):
        read = one_question.read_question(run, "popqa", "q0100")
        read.answers["tiny"] = {
            "replug": read.answers["tiny"]["replug"] | {"doc_has_answer": True, "lm_calls": 10}
        }
        parts = pages._templates().get_template("parts.html.j2").module
        chosen = Slice.parse(run, {})
        phrases = {"base": "", "method": ""}
        page = parts.details(read, ["tiny"], read.row["possible_answers"], chosen, phrases)
        assert f'<td data-label="has the answer">{said}' in page


def test_the_first_page_has_the_main_numbers(answered):
    (row,) = [
        one
        for one in pages.accuracies(answered)
        if one["lm"] == "tiny" and one["dataset"] == "popqa"
    ]
    table = pq.read_table(answered.data / "analyses/accuracy.parquet").to_pylist()
    known = [one for one in table if (one["dataset"], one["lm"]) == ("popqa", "tiny")]
    best = max(
        (one for one in known if one["method"] != "closed_book"), key=lambda one: one["substring"]
    )
    (closed,) = (one for one in known if one["method"] == "closed_book")
    for shown, of in ((row["closed_book"], closed), (row["best"], best)):
        assert (shown["method"], dataclasses.astuple(shown["substring"])) == (
            of["method"],
            (of["substring"], of["substring_low"], of["substring_high"]),
        )
        listed = slices.list_questions(answered, row["slice"])
        assert listed.accuracies[""][shown is row["best"]] == shown["substring"], (
            "the list that it leads to says the same"
        )
    assert row["questions"] == 800
    home = pages.home(answered, [])
    assert pages.in_percent(row["best"]["substring"], digits=1)[0] in home
    wrong = row["counts"].wrong
    for page in ("namesake", "subject"):
        number = f"{wrong[page]['wrong']} of {row['counts'].all_wrong['wrong']}"
        link = html.escape(row["slice"].to_wrong(page, "wrong"))
        assert f'<a href="{link}#list">{number} read {READ[page]}</a>' in home


def test_a_share_has_its_interval_beside_it():
    few = Interval(2 / 7, 0.08, 0.64)
    assert pages.in_percent(few) == ("29\xa0%", "[8,\xa064]")
    assert pages.in_percent(few, digits=1) == ("28.6\xa0%", "[8.0,\xa064.0]")


def test_a_similarity_says_what_it_is_of(asked, answered):
    page = html.unescape(pages.question(asked.run, {"id": "q1", "prompt": "tiny/bm25"}))
    assert re.search(r'data-label="similarity">\d\.\d{3} <small>BM25\'s score</small>', page)
    assert re.search(r"best of BM25 \(BM25's score \d\.\d{3}\)", page)
    assert '<th scope="col" class="number">BM25\'s score</th>' in page, "of the prompt's documents"
    dot = copy.copy(answered.params)
    dot.retriever = dot.retriever | {
        "e5-base": dot.retriever["e5-base"].model_copy(update={"similarity": "dot"})
    }
    for method, said in (
        ("dense", "cosine"), ("replug_lsr", "cosine"), ("lsr_e5-base", "dot product"),
        ("hybrid_e5-base", "fusion of ranks"), ("web-search", "similarity"),
    ):  # fmt: skip
        assert methods.measure(method, dot.retrievers, dot.retriever) == said
