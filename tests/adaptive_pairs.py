"""Made-up answers, question sets and answer files, for the tests of thresholds."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.adaptive import held_out, refits
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.tuning import DEFAULTS
from pipelines.params import params
from pipelines.tables.answers import PREDICTIONS

CHOSEN = DEFAULTS.model_copy(update={"splits": 20})


def made_pairs(n: int = 600, seed: int = 0, crossing: float = 1000.0, **columns) -> Pairs:
    """Closed-book answers are right above `crossing`, augmented ones below it, with some noise; one
    rare relation.

    The closed-book answer's probability says as much as the popularity.
    """
    rng = np.random.default_rng(seed)
    popularity = np.ceil(10 ** rng.normal(3, 1, n))
    flip = rng.random((2, n)) < 0.2
    relations = np.array([f"P{i}" for i in rng.integers(0, 4, n)], dtype=object)
    relations[::60] = "rare"
    closed = (popularity >= crossing) ^ flip[0]
    made = {
        "ids": np.array([f"q{i:04d}" for i in range(n)], dtype=object),
        "subjects": np.array([f"Q{i // 3}" for i in range(n)], dtype=object),
        "relations": relations,
        "signal": popularity,
        "confidence": popularity / popularity.max(),
        "right_above": closed,
        "right_below": (popularity < crossing) ^ flip[1],
    }
    pairs = Pairs(**made | columns)
    return pairs.take(np.lexsort((pairs.signal, pairs.relations)))


def splits(pairs: Pairs, chosen: params.Thresholds = CHOSEN) -> np.ndarray:
    """Which questions each split trains on, (n, splits)."""
    return held_out.split_train(0, pairs.units(chosen.split_by), chosen.splits, chosen.train_share)


def resampled(
    pairs: Pairs, chosen: params.Thresholds = CHOSEN, resamples: int = 100
) -> refits.Resamples:
    return refits.resample(
        pairs.subjects, pairs.units(chosen.split_by), chosen.train_share, 0, resamples
    )


def summary(
    pairs: Pairs, search: str = "", chosen: params.Thresholds = CHOSEN, resamples: int = 100
) -> dict:
    """The figures of a search, that in use if it is not named, on the splits of `chosen`."""
    train, drawn = splits(pairs, chosen), resampled(pairs, chosen, resamples)
    fitted = held_out.fit_all(pairs, train, drawn, search or chosen.search, chosen)
    return held_out.summary(pairs, fitted.policy, drawn)


def write_answers(path: Path, ids: list[str], correct, **columns) -> Path:
    nulls = {field.name: pa.nulls(len(ids), field.type) for field in PREDICTIONS.schema}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table(nulls | {"question_id": ids, "correct": correct} | columns).cast(
            PREDICTIONS.schema
        ),
        path,
    )
    return path


def write_questions(path: Path, ids: list[str], popularity, **columns) -> Path:
    n = len(ids)
    table = {
        "question_id": ids,
        "relation": [f"P{i % 2}" for i in range(n)],
        "question": ["the same text"] * n,
        "subj": [f"s{i}" for i in range(n)],
        "s_uri": pa.nulls(n),
        "s_pop": pa.array(popularity, pa.int64()),
        "possible_answers": [[f"a{i}"] for i in range(n)],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table | columns), path)
    return path
