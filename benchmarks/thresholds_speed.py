"""Threshold search: how fast all splits at once are, compared with the published notebook.

Answers are simulated (simulated_answers.py) for the popularities of the published question set
($LONGTAIL_REAL/popqa/popQA.tsv), else for log-normal ones. Both ways judge the same splits on one
core and must find the same numbers.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import measure
from benchmarks.measure import Row
from benchmarks.simulated_answers import World
from pipelines.adaptive import held_out, tuning
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.searches import SEARCHES

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import notebook

PEER = "the published notebook's way, its ten bins"
TRAIN_SHARE = 0.75
SETTINGS = tuning.DEFAULTS.model_copy(update={"min_questions": 1})  # the notebook pools none
SAME = ("adaptive", "always", "never", "retrieved")  # columns of both ways


def rows(quick: bool = False) -> list[Row]:
    popqa = measure.real("popqa/popQA.tsv")
    views = None
    if popqa:
        views = pd.read_csv(popqa, sep="\t")["s_pop"].to_numpy(float)
    world = World("mixed", popularity=views)
    if quick:
        return compare(world.draw(400, seed=0), splits=3, rounds=1)
    return compare(world.draw(14_267, seed=0), splits=100, rounds=3)


def compare(pairs: Pairs, splits: int, rounds: int) -> list[Row]:
    """A row for each search, and one for the exact search with the draws of the splits."""
    drawing = measure.timed(
        lambda: held_out.split_train(0, pairs.subjects, splits, TRAIN_SHARE),
    )
    train = drawing.result
    works = {"notebook": partial(run_notebook, pairs, train)}
    for search in SEARCHES:
        works[search] = partial(judge, pairs, train, search)
    runs = measure.in_turns(works, rounds)

    theirs = runs.pop("notebook")
    for name in SAME:
        np.testing.assert_allclose(
            runs["bins"].result[name], theirs.result[name], rtol=1e-12, err_msg=name
        )

    exact = runs["exact"]
    runs["exact, and drawing the splits"] = exact._replace(cpu=exact.cpu + drawing.cpu)
    n_relations = len(pairs.members())
    work = f"thresholds, {len(pairs.ids):,} questions x {n_relations} relations x {splits} splits"
    table = []
    for name, ours in runs.items():
        row = measure.row(f"{work}, {name}", PEER, "splits", splits, theirs, ours, memory=False)
        table.append(row)
    return table


def run_notebook(pairs: Pairs, train: np.ndarray) -> pd.DataFrame:
    columns = {
        "popularity": pairs.signal,
        "closed": pairs.right_above,
        "augmented": pairs.right_below,
        "relation": pairs.relations,
    }
    _, results = notebook.run(pd.DataFrame(columns), train.T)
    return results


def judge(pairs: Pairs, train: np.ndarray, search: str) -> dict[str, np.ndarray]:
    """The columns SAME, a value for each split."""
    cuts = held_out.fit(pairs, train, search, SETTINGS)
    # float32 holds these counts exactly and is the fastest to multiply
    held = (~train).astype(np.float32)
    retrieves = held * held_out.below(pairs, cuts)
    right_above = pairs.right_above.astype(np.float32)
    right_below = pairs.right_below.astype(np.float32)
    above = right_above @ held
    counts = {
        "adaptive": above + (right_below - right_above) @ retrieves,
        "always": right_below @ held,
        "never": above,
        "retrieved": retrieves.sum(axis=0),
    }
    questions = held.sum(axis=0).astype(float)
    return {name: count / questions for name, count in counts.items()}
