"""Slices of a question set: counts that agree with the tables of answers, pages that hold each
question once.
"""

import dataclasses
import html
import re
import shutil
from collections import Counter
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import intervals
from pipelines.errors import LongtailError
from pipelines.explorer import pages, slices
from pipelines.explorer.addresses import ROWS_OF_PAGE
from pipelines.explorer.reasons import READ
from pipelines.explorer.run import Run
from pipelines.explorer.slices import Slice

CELLS = {
    (True, True): "both",
    (True, False): "base",
    (False, True): "method",
    (False, False): "neither",
}


def ids_of(run, chosen: Slice) -> list[str]:
    """The ids of a slice's questions, in its order."""
    page = slices.PAGE_OF_ROWS.format(order=slices.ORDERS[chosen.order])
    listed = slices._rows(run, chosen, page, limit=800, offset=0)
    return [row["question_id"] for row in listed]


def rows(run, lm, base, method) -> list[tuple[dict, str]]:
    """(question, its cell), by looking into the files."""
    files = run.answers("popqa")[lm]
    right = [
        dict(zip(table["question_id"].to_pylist(), table["correct"].to_pylist(), strict=True))
        for table in map(pq.read_table, (files[base], files[method]))
    ]
    rows = pq.read_table(run.questions("popqa")).to_pylist()
    return [(row, CELLS[tuple(of_file[row["question_id"]] for of_file in right)]) for row in rows]


@pytest.mark.parametrize(
    ("lm", "base", "method"), [("tiny", "bm25", "replug_lsr"), ("davinci", "closed_book", "dense")]
)
def test_the_cells_are_those_of_the_tables_of_answers(answered, lm, base, method):
    chosen = Slice.parse(answered, {"lm": lm, "base": base, "method": method, "order": "id"})
    known = rows(answered, lm, base, method)
    counted = Counter(cell for _, cell in known)
    listed = slices.list_questions(answered, chosen)
    assert listed.cells == counted
    ids = [row["question_id"] for row, _ in known if row["relation"] == "P57"]
    assert ids_of(answered, replace(chosen, relation="P57")) == ids
    of_cell = slices.list_questions(answered, replace(chosen, cell="base"))
    assert (of_cell.total, of_cell.cells) == (counted["base"], listed.cells)
    for name in CELLS.values():
        ids = [row["question_id"] for row, cell in known if cell == name]
        assert ids_of(answered, replace(chosen, cell=name)) == ids


def test_a_band_has_the_questions_that_its_row_counts(answered):
    chosen = Slice.parse(answered, {"relation": "P57"})
    assert (chosen.base, chosen.method) == ("closed_book", "bm25")
    known = rows(answered, "tiny", chosen.base, chosen.method)
    known = [(row, name) for row, name in known if row["relation"] == "P57"]
    bands = slices.count_questions(answered, chosen).bands
    assert len(bands) > 4
    for band, counts in bands.items():
        least, _, most = band.partition("-")
        assert counts == Counter(
            name for row, name in known if int(least) <= row["s_pop"] <= int(most or 10**9)
        )
    assert sum(counts.total() for counts in bands.values()) == len(known)
    band, counts = max(bands.items(), key=lambda item: item[1].total())
    assert (
        slices.count_questions(answered, replace(chosen, popularity=band, cell="base")).total
        == counts["base"]
        > 0
    )


def test_both_ends_of_a_range_of_popularity_are_in_it(answered):
    views = sorted(pq.read_table(answered.questions("popqa"))["s_pop"].to_pylist())
    least, most = views[100], views[200]
    for popularity, low, high in (
        (f"{least}-{most}", least, most),
        (f"{least}-", least, 10**9),
        (f"-{most}", 0, most),
    ):
        listed = slices.list_questions(answered, Slice.parse(answered, {"popularity": popularity}))
        assert listed.total == sum(low <= number <= high for number in views)


def test_two_models_are_compared_question_by_question(answered):
    chosen = Slice.parse(answered, {"base": "dense", "method": "davinci/dense", "order": "id"})
    assert (chosen.lm, chosen.compared) == ("tiny", (("tiny", "dense"), ("davinci", "dense")))
    files = answered.answers("popqa")
    right = [pq.read_table(files[lm]["dense"])["correct"].to_pylist() for lm in ("tiny", "davinci")]
    counted = Counter(CELLS[both] for both in zip(*right, strict=True))
    assert slices.count_questions(answered, chosen).cells == counted
    only = [f"q{i:04d}" for i, both in enumerate(zip(*right, strict=True)) if both == (False, True)]
    assert ids_of(answered, replace(chosen, cell="method")) == only != []
    assert (
        Slice.parse(answered, {"base": "davinci/closed_book", "method": "tiny/bm25"})
        .to()
        .endswith("tiny%2Fbm25")
    )


@pytest.fixture
def read(answered, tmp_path) -> Run:
    """The run, but BM25 read the subject's page, a namesake's, another one, and one of nobody known
    in turns.

    Every second passage holds the answer; two questions of one subject follow each other.
    """
    run = Run(shutil.copytree(answered.data, tmp_path / "data"), answered.params)
    bm25 = run.answers("popqa")["tiny"]["bm25"]
    for file, name, values in (
        (bm25, "doc_has_answer", [i // 4 % 2 == 0 for i in range(800)]),
        (bm25, "doc_is_subject", [(True, False, False, None)[i % 4] for i in range(800)]),
        (bm25, "doc_is_namesake", [(False, True, False, None)[i % 4] for i in range(800)]),
        (run.questions("popqa"), "s_uri", [f"http://www.wikidata.org/entity/Q{i // 2}" for i in range(800)]),
        (run.questions("popqa"), "question", ["=1+1", *map(str, range(799))]),
    ):  # fmt: skip
        table = pq.read_table(file)
        pq.write_table(
            table.set_column(table.column_names.index(name), name, pa.array(values)), file
        )
    return run


def test_wrong_answers_are_counted_by_what_was_read(read):
    """Each count is that of the files, and so are the questions to which it leads."""
    wrong = slices.count_questions(read, Slice.parse(read, {"relation": "P57"})).wrong
    known = enumerate(rows(read, "tiny", "closed_book", "bm25"))
    known = [(i, row, cell) for i, (row, cell) in known if cell in ("base", "neither")]
    for number, page in enumerate(("subject", "namesake", "another", "page")):
        by_page = [(i, row, cell) for i, row, cell in known if i % 4 == number]
        by_page = [(i, row, cell) for i, row, cell in by_page if row["relation"] == "P57"]
        ids = {
            "wrong": [row["question_id"] for _, row, _ in by_page],
            "holds": [row["question_id"] for i, row, _ in by_page if i // 4 % 2 == 0],
            "lacks": [row["question_id"] for i, row, _ in by_page if i // 4 % 2 == 1],
            "base": [row["question_id"] for _, row, cell in by_page if cell == "base"],
        }
        for counted, expected in ids.items():
            chosen = Slice.parse(read, {"relation": "P57", "order": "id"})
            address = chosen.to_wrong(page, counted)
            listed = Slice.parse(read, dict(parse_qsl(urlsplit(address).query)))
            assert ids_of(read, listed) == expected != []
            assert wrong[page][counted] == len(expected)
    assert not wrong["nothing"]
    assert not wrong["written"]


def test_a_count_leads_to_its_questions(read):
    page = pages.questions(read, {"read": "namesake", "relation": "P57"})
    link = r'<a href="/questions\?([^"]+)#list"(?! aria-current)[^>]*>'
    counts = re.findall(link + r"(?:<b>)?(\d+)<", page)
    counts += re.findall(link + r'[^<]+</a></th>\n<td class="number">(\d+)', page)
    assert len(counts) > 20
    for address, n in counts[::2]:
        chosen = Slice.parse(read, dict(parse_qsl(html.unescape(address))))
        assert slices.count_questions(read, chosen).total == int(n), chosen


def test_a_question_has_those_beside_it_in_its_slice(read):
    chosen = Slice.parse(read, {"cell": "wrong", "read": "namesake", "order": "rare"})
    ids = ids_of(read, chosen)
    assert len(ids) > ROWS_OF_PAGE
    for i in (0, 1, ROWS_OF_PAGE, len(ids) - 1):
        place = slices.find_place(read, chosen, ids[i])
        assert (place.number, place.total) == (i + 1, len(ids))
        assert place.previous == (ids[i - 1] if i else None)
        assert place.next == (ids[i + 1] if i + 1 < len(ids) else None)
        assert place.page == i // ROWS_OF_PAGE + 1
    assert slices.find_place(read, replace(chosen, read="subject"), ids[0]) is None


def test_a_share_has_the_one_interval_of_shares(read):
    chosen = Slice.parse(read, {"relation": "P57"})
    known = rows(read, "tiny", "closed_book", "bm25")
    known = [(row, cell) for row, cell in known if row["relation"] == "P57"]
    listed = slices.list_questions(read, chosen)
    assert len(listed.bands) > 4
    for band in listed.bands:
        least, _, most = band.partition("-")
        own = [
            (row["s_uri"], cell)
            for row, cell in known
            if int(least) <= row["s_pop"] <= int(most or 10**9)
        ]
        subjects = np.array([subject for subject, _ in own])
        for found, of in zip(listed.accuracies[band], ("base", "method"), strict=True):
            share = intervals.share(np.array([cell in ("both", of) for _, cell in own]), subjects)
            assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(share))
    few = slices.list_questions(read, replace(chosen, popularity=band)).accuracies
    assert few[""] == few[band] == listed.accuracies[band] != listed.accuracies[""]


def test_the_list_says_whose_page_the_passage_is_of(read):
    keys = ["subject", "namesake", "another", "page"]
    page = pages.questions(read, {"order": "id"})
    shown = re.findall(r"<small>after reading <bdi>[^<]+</bdi>(?:, ([^<]+))?</small>", page)
    assert shown == [("" if key == "page" else READ[key]) for key in (keys * 13)[:50]]


def test_questions_of_unknown_popularity_are_a_band_of_their_own(answered, tmp_path):
    run = Run(shutil.copytree(answered.data, tmp_path / "data"), answered.params)
    file = run.questions("popqa")
    table = pq.read_table(file)
    views = [None if i % 8 == 0 else value for i, value in enumerate(table["s_pop"].to_pylist())]
    pq.write_table(
        table.set_column(table.column_names.index("s_pop"), "s_pop", pa.array(views, pa.int64())),
        file,
    )
    listed = slices.list_questions(run, Slice.parse(run, {"order": "rare"}))
    expected = (800, 100, "unknown")
    assert (listed.total, listed.bands["unknown"].total(), [*listed.bands][-1]) == expected
    for popularity, count in (("unknown", 100), ("0-", 700)):
        assert (
            slices.count_questions(run, Slice.parse(run, {"popularity": popularity})).total == count
        )


@pytest.mark.parametrize("order", slices.ORDERS)
def test_the_pages_hold_each_question_once_in_order(answered, order):
    chosen = Slice.parse(answered, {"order": order, "relation": "P57"})
    listed = slices.list_questions(answered, chosen)
    pages = [
        slices.list_questions(answered, replace(chosen, page=page)).rows
        for page in range(1, listed.pages + 1)
    ]
    assert [len(page) for page in pages[:-1]] == [ROWS_OF_PAGE] * (listed.pages - 1)
    shown = [row for page in pages for row in page]
    assert len({row["question_id"] for row in shown}) == len(shown) == listed.total > ROWS_OF_PAGE
    views, ids = [row["s_pop"] for row in shown], [row["question_id"] for row in shown]
    assert (
        (sorted(ids) == ids)
        if order == "id"
        else (views == sorted(views, reverse=order == "popular"))
    )


def test_words_are_found_in_any_order(answered):
    sevens = [f"q{i:04d}" for i in range(800) if "77" in f"{i:04d}"]
    # a gold and a given answer, ids
    for words in ("77 IS what", "77", "answer 77 q0", "77 <B>X co?", "q77 what"):
        chosen = Slice.parse(answered, {"words": words, "order": "id"})
        found = ids_of(answered, chosen)
        assert found == [
            id_ for id_ in sevens if words != "q77 what" or id_.lstrip("q0").startswith("77")
        ], words
        assert slices.count_questions(answered, chosen).total == len(found)
    for words in ("wikidata", "77 nobody", "%", "' OR 1=1 --", "{0}", "\\"):
        assert slices.count_questions(answered, Slice.parse(answered, {"words": words})).total == 0


def test_an_address_says_the_whole_slice_again(answered):
    def again(address: str) -> Slice:
        return Slice.parse(answered, dict(parse_qsl(urlsplit(address).query)))

    asked = {"relation": "P57", "cell": "base", "method": "davinci/dense", "passage": "holds"}
    asked |= {"read": "namesake"}
    asked |= {"words": "a&b=c #é", "page": "2"}
    for chosen in (Slice.parse(answered, asked), Slice.parse(answered, {})):
        assert (
            again(chosen.to(page=chosen.page)) == again(chosen.to("/question", id="q1")) == chosen
        )
        assert again(chosen.to(cell="both")).page == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"set": "nq"}, "set: there is no 'nq', expected one of: popqa, entityquestions"),
        ({"lm": "davinci", "method": "bm25"}, "method: there is no 'bm25', expected one of: closed_book, dense"),
        ({"method": "gpt/dense"}, "method: there is no 'gpt', expected one of: tiny, davinci"),
        ({"relation": "P999"}, "relation: there is no 'P999', expected one of: P.*"),
        ({"passage": "read"}, "passage: there is no 'read', expected one of: holds, lacks"),
        ({"popularity": "many"}, "popularity: 'many', expected a range LEAST-MOST, as 1000-9999, or unknown"),
        ({"page": "0"}, "page: '0' is no page, expected a number from 1 on"),
    ],
)  # fmt: skip
def test_a_value_that_there_is_not_is_named_with_those_that_are(answered, asked, said):
    with pytest.raises(LongtailError, match=f"^{said}$"):
        Slice.parse(answered, asked)
