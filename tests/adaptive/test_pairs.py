"""Two answers to a question are paired by its id, and an id that is doubled or missing is named."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest
from adaptive_pairs import CHOSEN, write_answers, write_questions
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import params
from pipelines.adaptive import held_out
from pipelines.adaptive.pairs import Choice, choices, read_pairs
from pipelines.errors import LongtailError

IDS = ["q0", "q1", "q2", "q3"]


@pytest.fixture
def files(tmp_path):
    """A question set, the popularity of q1 unknown, and two files of answers in opposite orders."""
    return (
        write_questions(tmp_path / "q.parquet", IDS, [30, None, 10, 20]),
        write_answers(tmp_path / "c.parquet", IDS, [True, True, False, False], mean_log_prob=[0.0, -1, -np.inf, None]),
        write_answers(tmp_path / "a.parquet", IDS[::-1], [True, False, False, False]),
    )


def test_answers_are_paired_by_id_and_unknown_popularity_is_counted(files):
    pairs = read_pairs(*files).known()
    assert pairs.excluded == 1
    assert pairs.relations.tolist() == ["P0", "P0", "P1"]
    assert pairs.signal.tolist() == pairs.popularity.tolist() == [10, 30, 20]
    assert pairs.gains(0.0).tolist() == [0, -1, 1]
    assert pairs.subjects.tolist() == ["s2", "s0", "s3"]
    assert pairs.members() == {"P0": slice(0, 2), "P1": slice(2, 3)}
    np.testing.assert_array_equal(pairs.confidence, [0.0, 1.0, np.nan])  # nothing said is no confidence at all


def test_the_score_and_margin_are_the_augmented_answers_and_may_be_lacking(files, tmp_path):
    found = write_answers(
        tmp_path / "f.parquet", IDS, [True] * 4, similarity=[4.0, 3, 2, 1], margin=[0.5, 0.25, None, 0]
    )
    pairs = read_pairs(files[0], files[1], found)
    assert pairs.ids.tolist() == ["q2", "q0", "q3", "q1"]  # q1 of unknown popularity
    assert pairs.score.tolist() == [2, 4, 1, 3]
    np.testing.assert_array_equal(pairs.margin, [np.nan, 0.5, 0, 0.25])
    assert np.isnan(read_pairs(files[0], found, files[2]).score).all()
    imported = pq.read_table(found).drop_columns(["margin"])  # as earlier imports are
    pq.write_table(imported, tmp_path / "old.parquet")
    older = read_pairs(files[0], files[1], tmp_path / "old.parquet")
    assert (older.score.tolist(), np.isnan(older.margin).all()) == ([2, 4, 1, 3], True)


def test_questions_that_nobody_answered_leave_the_others_theirs(tmp_path, files):
    answers = [write_answers(tmp_path / name, ["q2", "q3"], [True, False]) for name in ("c3.parquet", "a3.parquet")]
    pairs = read_pairs(files[0], *answers)
    assert (pairs.subjects.tolist(), pairs.signal.tolist()) == (["s2", "s3"], [10, 20])


@given(st.lists(st.tuples(st.none() | st.integers(0, 6), st.booleans(), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_thresholds_of_questions_of_which_some_have_no_popularity(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("drawn")
    ids = [f"q{i:02d}" for i in range(len(drawn))]
    popularity, closed, augmented = zip(*drawn, strict=True)
    pairs = read_pairs(
        write_questions(folder / "q.parquet", ids, popularity, relation=["P1"] * len(ids)),
        write_answers(folder / "c.parquet", ids, closed),
        write_answers(folder / "a.parquet", ids, augmented),
    ).known()
    known = [row for row in drawn if row[0] is not None]
    assert pairs.excluded == len(drawn) - len(known)
    cuts = held_out.fit(pairs, np.ones((len(known), 1), dtype=bool), "exact", CHOSEN)
    every = [0, *sorted({views for views, _, _ in known})[1:], np.inf]
    right = [sum(a if views < cut else c for views, c, a in known) for cut in every]
    assert {name: own.tolist() for name, own in cuts.items()} == (
        {"P1": [every[int(np.argmax(right))]]} if known else {}
    )


def test_costs_are_in_the_unit_asked_for(files, tmp_path):
    questions, *_ = files
    spent = [
        write_answers(tmp_path / name, IDS, [True] * 4, prompt_tokens=[n] * 4, new_tokens=[50] * 4, cost=[n / 1e6] * 4)
        for name, n in (("c2.parquet", 450), ("a2.parquet", 1950))
    ]
    extra = {
        unit: np.unique(pairs.augmented_cost - pairs.closed_cost).tolist()
        for unit in ("retrievals", "tokens", "money")
        for pairs in [read_pairs(questions, *spent, unit).known()]
    }
    assert extra == {"retrievals": [1.0], "tokens": [1.5], "money": [pytest.approx(0.0015)]}
    pairs = read_pairs(questions, *spent, "tokens").known()
    assert (pairs.closed_cost.tolist(), pairs.augmented_cost.tolist()) == ([0.5] * 3, [2.0] * 3)
    assert pairs.costs_known
    assert not read_pairs(*files, "tokens").costs_known


def test_a_text_that_is_brought_to_either_answer_counts_as_a_retrieval(files):
    spent = {
        brought: [float(costs[0]) for costs in (pairs.closed_cost, pairs.augmented_cost)]
        for brought in ((False, True), (True, True), (True, False))
        for pairs in [read_pairs(*files, "retrievals", brought)]
    }
    assert spent == {(False, True): [0, 1], (True, True): [1, 1], (True, False): [1, 0]}


FILES = {
    "popqa": {
        "small": dict.fromkeys(("closed_book", "bm25", "dense", "genread")),
        "large": dict.fromkeys(("closed_book", "dense", "genread")),
        "elsewhere": dict.fromkeys(("closed_book", "bm25")),
    },
    "entityquestions": {
        "small": dict.fromkeys(("closed_book", "dense")),
        "large": dict.fromkeys(("closed_book", "dense")),
    },
}


def named(*pairs):
    """Question set -> (lm, method) of the choices, those of the default first."""
    asked = [params.Pair(popular=popular, tail=tail) for popular, tail in pairs]
    found = choices(FILES, ["small", "large"], asked)
    return {dataset: [(choice.lm, choice.name) for choice in of_set] for dataset, of_set in found.items()}


def test_without_pairs_each_model_chooses_between_its_closed_book_answer_and_each_other():
    assert named() == {
        "popqa": [(lm, method) for lm, methods in FILES["popqa"].items() for method in methods if method[0] != "c"],
        "entityquestions": [("small", "dense"), ("large", "dense")],
    }


def test_pairs_are_of_every_model_or_of_those_that_are_named():
    default, found = (
        named(),
        named(("genread", "dense"), ("large/closed_book", "small/dense"), ("closed_book", "dense")),
    )
    assert found["popqa"][: len(default["popqa"])] == default["popqa"]
    further = {dataset: of_set[len(default[dataset]) :] for dataset, of_set in found.items()}
    assert further == {
        "popqa": [
            ("small", "dense_below_genread"),
            ("large", "dense_below_genread"),
            ("large", "small/dense_below_closed_book"),
        ],
        "entityquestions": [("large", "small/dense_below_closed_book")],
    }
    assert named(("large/dense", "dense"))["popqa"][-1] == ("large", "small/dense_below_dense")


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (("small/genread", "large/bm25"), r"thresholds\.pairs: large/bm25 has no answers to popqa or entityquestions"),
        (("closed_book", "lsr"), r"small/lsr has no answers to .*expected data/predictions/<set>/small/lsr\.parquet"),
        (("huge/dense", "dense"), r"thresholds\.pairs: huge/dense has no answers"),
    ],
)
def test_answers_that_are_not_there_are_named(pair, said):
    with pytest.raises(LongtailError, match=said) as error:
        named(pair)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "choice",
    [
        Choice(("large", "closed_book"), ("large", "dense")),
        Choice(("large", "genread"), ("large", "dense_two")),
        Choice(("large", "closed_book"), ("small", "closed_book")),
        Choice(("large", "dense"), ("small", "closed_book")),
    ],
)
def test_a_choice_is_known_by_its_model_and_name(choice):
    assert Choice.named(choice.lm, choice.name) == choice


@pytest.mark.parametrize(("which", "name"), list(enumerate("qca")))
def test_a_doubled_id_is_named(files, tmp_path, which, name):
    doubled = list(files)
    write = write_questions if name == "q" else write_answers
    doubled[which] = write(tmp_path / "x.parquet", [*IDS, "q2"], [True] * 5 if name != "q" else [1] * 5)
    with pytest.raises(LongtailError, match=r"x\.parquet: has the id q2 more than once"):
        read_pairs(*doubled)


@pytest.mark.parametrize(("which", "name"), list(enumerate("qca")))
def test_a_missing_id_is_named_and_the_others_counted(files, tmp_path, which, name):
    short = list(files)
    write = write_questions if name == "q" else write_answers
    short[which] = write(tmp_path / "x.parquet", IDS[2:], [True] * 2 if name != "q" else [1] * 2)
    with pytest.raises(LongtailError, match=r"x\.parquet: lacks the id q0 \(and 1 more"):
        read_pairs(*short)


def test_an_answer_not_judged_is_named(files, tmp_path):
    unjudged = write_answers(tmp_path / "x.parquet", IDS, [True, None, True, True])
    with pytest.raises(LongtailError, match=r"x\.parquet: does not say whether the answer to the id q1 is right"):
        read_pairs(files[0], files[1], unjudged)


def test_the_published_questions_with_answers_of_a_model_that_ran_elsewhere(real, tmp_path):
    """All 14,267, of which many share a text; each keeps its own pair of answers."""
    with (real / "popqa/popQA.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    ids, texts = [row["id"] for row in rows], [row["question"] for row in rows]
    rng = np.random.default_rng(0)
    closed, augmented = rng.random((2, len(rows))) < 0.4
    questions = write_questions(
        tmp_path / "q.parquet",
        ids,
        [int(row["s_pop"]) for row in rows],
        relation=[row["prop"] for row in rows],
        question=texts,
        s_uri=[row["s_uri"] for row in rows],
    )
    order = rng.permutation(len(rows))
    pairs = read_pairs(
        questions,
        write_answers(tmp_path / "c.parquet", ids, closed),
        write_answers(tmp_path / "a.parquet", [ids[i] for i in order], augmented[order]),
    )
    assert len(pairs.signal) == 14_267
    assert len(set(texts)) < 14_267
    assert len(pairs.members()) == 16
    popularity = np.array([int(row["s_pop"]) for row in rows])
    expected = np.lexsort((ids, popularity, [row["prop"] for row in rows]))
    assert (pairs.closed == closed[expected]).all()
    assert (pairs.augmented == augmented[expected]).all()
