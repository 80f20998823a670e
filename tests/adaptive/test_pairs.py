"""Two answers to a question are paired by its id, and an id that is doubled or missing is named."""

import numpy as np
import pytest
from adaptive_pairs import write_answers, write_questions

from pipelines.adaptive.pairs import choices, read_pairs
from pipelines.errors import LongtailError
from pipelines.params import params

IDS = ["q0", "q1", "q2", "q3"]


@pytest.fixture
def files(tmp_path):
    """A question set, the popularity of q1 unknown, and two files of answers in opposite orders."""
    return (
        write_questions(tmp_path / "q.parquet", IDS, [30, None, 10, 20]),
        write_answers(
            tmp_path / "c.parquet",
            IDS,
            [True, True, False, False],
            mean_log_prob=[0.0, -1, -np.inf, None],
        ),
        write_answers(tmp_path / "a.parquet", IDS[::-1], [True, False, False, False]),
    )


def test_answers_are_paired_by_id(files):
    pairs = read_pairs(*files)
    assert pairs.excluded == 1
    assert pairs.relations.tolist() == ["P0", "P0", "P1"]
    assert pairs.signal.tolist() == [10, 30, 20]
    assert pairs.gains.tolist() == [0, -1, 1]
    assert pairs.subjects.tolist() == ["s2", "s0", "s3"]
    assert pairs.members() == {"P0": slice(0, 2), "P1": slice(2, 3)}
    # nothing said is no confidence at all
    np.testing.assert_array_equal(pairs.confidence, [0.0, 1.0, np.nan])
    few = [write_answers(file, ["q2", "q3"], [True, False]) for file in files[1:]]
    pairs = read_pairs(files[0], *few)  # questions that nobody answered leave the others theirs
    assert (pairs.subjects.tolist(), pairs.signal.tolist()) == (["s2", "s3"], [10, 20])


METHODS = {
    "popqa": {
        "small": ("closed_book", "bm25", "dense", "genread"),
        "large": ("closed_book", "dense", "genread"),
        "elsewhere": ("closed_book", "bm25"),
    },
    "entityquestions": {"small": ("closed_book", "dense"), "large": ("closed_book", "dense")},
}


def named(*pairs):
    """Question set -> (lm, method) of the choices, those of the default first."""
    files = {
        dataset: {lm: dict.fromkeys(of) for lm, of in of_set.items()}
        for dataset, of_set in METHODS.items()
    }
    asked = [params.Pair(above=above, below=below) for above, below in pairs]
    found = choices(files, ["small", "large"], asked)
    return {
        dataset: [(choice.lm, choice.name) for choice in of_set]
        for dataset, of_set in found.items()
    }


def test_each_closed_book_answer_is_paired_with_each_other():
    """The pairs that are named come after."""
    default = {
        "popqa": [
            (lm, method) for lm, methods in METHODS["popqa"].items() for method in methods[1:]
        ],
        "entityquestions": [("small", "dense"), ("large", "dense")],
    }
    assert named() == default
    below = [(lm, "dense_below_genread") for lm in ("small", "large")]  # of every model
    found = named(("genread", "dense"), ("closed_book", "dense"))
    assert found == default | {"popqa": default["popqa"] + below}


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (
            ("genread", "bm25"),
            r"thresholds\.pairs: large/bm25 has no answers to popqa or entityquestions",
        ),
        (
            ("closed_book", "lsr"),
            r"small/lsr has no answers to .*expected data/predictions/<set>/small/lsr\.parquet",
        ),
        (("lsr", "dense"), r"thresholds\.pairs: small/lsr has no answers"),
    ],
)
def test_answers_that_are_not_there_are_named(pair, said):
    with pytest.raises(LongtailError, match=said) as error:
        named(pair)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("ids", "correct", "said"),
    [
        ([*IDS, "q2"], [True] * 5, "has other questions than .*, or one twice"),
        (IDS[2:], [True] * 2, "has other questions than"),
    ],
)
def test_answers_that_do_not_fit_the_others_are_named(files, tmp_path, ids, correct, said):
    bad = write_answers(tmp_path / "x.parquet", ids, correct)
    with pytest.raises(LongtailError, match=rf"x\.parquet: {said}"):
        read_pairs(files[0], files[1], bad)
