"""Slices of a question set: counts that agree with the tables of answers, pages that hold each question once."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.explorer import slices
from pipelines.explorer.looked_at import Run
from pipelines.explorer.slices import Slice

RIGHT = {"both": (True, True), "base": (True, False), "method": (False, True), "neither": (False, False)}
JUDGED = {"published": "correct", "words": "correct_word"}


def rows(run, lm, base, method, judged):
    """(question, right by base, right by method), by looking into the files."""
    files = run.answers("popqa")[lm]
    right = [
        dict(zip(table["question_id"].to_pylist(), table[JUDGED[judged]].to_pylist(), strict=True))
        for table in map(pq.read_table, (files[base], files[method]))
    ]
    questions = pq.read_table(run.questions("popqa")).to_pylist()
    return [(row, right[0][row["question_id"]], right[1][row["question_id"]]) for row in questions]


def cell(base, method):
    return next(name for name, right in RIGHT.items() if right == (base, method))


@pytest.mark.parametrize(
    ("lm", "base", "method", "judged"),
    [
        ("tiny", "closed_book", "dense", "published"),
        ("tiny", "closed_book", "replug_lsr", "words"),
        ("tiny", "bm25", "genread", "published"),
        ("davinci", "closed_book", "dense", "published"),
        ("tiny", "dense", "dense", "published"),
    ],
)
def test_the_cells_are_those_of_the_tables_of_answers(answered, lm, base, method, judged):
    chosen = Slice.of(answered, {"lm": lm, "base": base, "method": method, "judged": judged})
    known = rows(answered, lm, base, method, judged)
    counted = Counter(cell(*right) for _, *right in known)
    listed = slices.listed(answered, chosen)
    assert listed.cells == {name: counted[name] for name in RIGHT}
    assert listed.total == sum(counted.values()) == 800
    assert listed.relations == dict(sorted(Counter(row["relation"] for row, *_ in known).items()))
    for relation in listed.relations:
        assert slices.ids(answered, replace(chosen, relation=relation, order="id"), 800) == [
            row["question_id"] for row, *_ in known if row["relation"] == relation
        ]
    for name, n in counted.items():
        of_cell = slices.listed(answered, replace(chosen, cell=name))
        assert (of_cell.total, of_cell.cells) == (n, listed.cells)
        assert slices.ids(answered, replace(chosen, cell=name, order="id"), 800) == [
            row["question_id"] for row, *right in known if cell(*right) == name
        ]


def test_a_band_has_the_questions_that_its_row_counts(answered):
    chosen = Slice.of(answered, {"relation": "P57"})
    known = [(row, cell(*right)) for row, *right in rows(answered, "tiny", chosen.base, chosen.method, "published")]
    known = [(row, name) for row, name in known if row["relation"] == "P57"]
    listed = slices.listed(answered, chosen)
    assert len(listed.bands) > 4
    for band, counts in listed.bands.items():
        least, _, most = band.partition("-")
        inside = [name for row, name in known if int(least) <= row["s_pop"] <= int(most or 10**9)]
        assert counts == Counter(inside)
        for name in RIGHT:
            assert slices.listed(answered, replace(chosen, popularity=band, cell=name)).total == counts[name]
    assert sum(counts.total() for counts in listed.bands.values()) == len(known)


def test_both_ends_of_a_range_of_popularity_are_in_it_and_either_may_be_left_out(answered):
    views = sorted(pq.read_table(answered.questions("popqa"))["s_pop"].to_pylist())
    least, most = views[100], views[200]
    for popularity, low, high in ((f"{least}-{most}", least, most), (f"{least}-", least, 10**9), (f"-{most}", 0, most)):
        listed = slices.listed(answered, Slice.of(answered, {"popularity": popularity}))
        assert listed.total == sum(low <= number <= high for number in views)


def test_questions_of_unknown_popularity_are_a_band_of_their_own(answered, tmp_path):
    import shutil

    run = Run(shutil.copytree(answered.data, tmp_path / "data"), answered.params)
    file = run.questions("popqa")
    table = pq.read_table(file)
    views = [None if i % 8 == 0 else value for i, value in enumerate(table["s_pop"].to_pylist())]
    import pyarrow as pa

    pq.write_table(table.set_column(table.column_names.index("s_pop"), "s_pop", pa.array(views, pa.int64())), file)
    listed = slices.listed(run, Slice.of(run, {"order": "rare"}))
    assert (listed.total, listed.bands["unknown"].total(), [*listed.bands][-1]) == (800, 100, "unknown")
    unknown = Slice.of(run, {"popularity": "unknown"})
    assert slices.listed(run, unknown).total == 100
    assert slices.listed(run, replace(unknown, popularity="0-")).total == 700
    assert [row["s_pop"] for row in slices.listed(run, Slice.of(run, {"page": "15"})).rows] == [None] * 50


@pytest.mark.parametrize("order", slices.ORDERS)
def test_the_pages_hold_each_question_once_in_order(answered, order):
    chosen = Slice.of(answered, {"order": order, "cell": "method"})
    listed = slices.listed(answered, chosen)
    pages = [slices.listed(answered, replace(chosen, page=page)).rows for page in range(1, listed.pages + 1)]
    assert [len(page) for page in pages[:-1]] == [slices.PAGE] * (listed.pages - 1)
    shown = [row for page in pages for row in page]
    assert len({row["question_id"] for row in shown}) == len(shown) == listed.total
    views = [row["s_pop"] for row in shown]
    if order != "id":
        assert views == sorted(views, reverse=order == "popular")
    ids = [row["question_id"] for row in shown]
    assert slices.neighbours(answered, chosen, ids[0]) == (None, ids[1])
    assert slices.neighbours(answered, chosen, ids[50]) == (ids[49], ids[51])
    assert slices.neighbours(answered, chosen, ids[-1]) == (ids[-2], None)
    assert slices.neighbours(answered, chosen, "elsewhere") == (None, None)


def test_words_of_a_question_are_words_and_no_pattern(answered):
    found = slices.listed(answered, Slice.of(answered, {"words": "what IS 77"}))
    assert [row["question"] for row in found.rows] == [f"What is {i} & co?" for i in (779, *range(778, 769, -1), 77)]
    for words in ("%", "_", "' OR 1=1 --", "{0}", "\\"):
        assert slices.listed(answered, Slice.of(answered, {"words": words})).total == 0


def test_an_answer_that_is_not_judged_is_in_no_cell(answered):
    """What was imported does not say whether it is right by whole words."""
    listed = slices.listed(answered, Slice.of(answered, {"lm": "davinci", "judged": "words"}))
    assert (sum(listed.cells.values()), listed.unjudged, listed.total) == (0, 800, 800)


def test_an_address_says_the_whole_slice_again(answered):
    from urllib.parse import parse_qsl, urlsplit

    for relation, cell_, words, page in product(("", "P57"), ("", "base"), ("", "a&b=c #é"), (1, 2)):
        asked = {"relation": relation, "cell": cell_, "words": words, "judged": "words", "page": str(page)}
        chosen = Slice.of(answered, asked)
        again = dict(parse_qsl(urlsplit(chosen.to(page=page)).query))
        assert Slice.of(answered, again) == chosen
    assert Slice.of(answered, dict(parse_qsl(urlsplit(chosen.to(cell="both")).query))).page == 1
    assert Slice.of(answered, dict(parse_qsl(urlsplit(chosen.to("/question", id="q1")).query))) == chosen


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"set": "nq"}, "set: there is no 'nq', expected one of: popqa, entityquestions"),
        ({"lm": "gpt"}, "lm: there is no 'gpt', expected one of: tiny, davinci"),
        ({"lm": "davinci", "method": "bm25"}, "method: there is no 'bm25', expected one of: closed_book, dense"),
        ({"cell": "x"}, "cell: there is no 'x', expected one of: both, base, method, neither"),
        ({"popularity": "many"}, "popularity: 'many' is no range, expected LEAST-MOST, as 1000-9999, or unknown"),
        ({"page": "0"}, "page: '0' is no page, expected a number from 1 on"),
        ({"order": "random"}, "order: there is no 'random', expected one of: popular, rare, id"),
    ],
)
def test_a_value_that_there_is_not_is_named_with_those_that_are(answered, asked, said):
    with pytest.raises(LongtailError) as raised:
        Slice.of(answered, asked)
    assert str(raised.value) == said


def test_without_answers_one_line_says_what_makes_some(tmp_path, answered):
    with pytest.raises(LongtailError, match=r"predictions: no answers; `longtail run` makes it, or `longtail import-"):
        Slice.of(Run(tmp_path, answered.params), {})


def test_without_a_choice_the_answers_are_compared_that_the_report_leads_with(answered):
    chosen = Slice.of(answered, {})
    assert (chosen.base, chosen.method) == ("closed_book", "dense")
