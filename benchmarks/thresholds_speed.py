"""Threshold search: how fast all splits at once are, compared with the published notebook.

Answers are simulated (benchmarks/coverage.py) for the popularities of the published question set
($LONGTAIL_REAL/popqa/popQA.tsv), else for log-normal ones. Both ways judge the same splits on one
core and must find the same numbers.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import measure
from benchmarks.coverage import World
from benchmarks.measure import Row
from pipelines.adaptive import held_out, tuning
from pipelines.adaptive.searches import SEARCHES

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import notebook

TRAIN_SHARE = 0.75


def compare(views: np.ndarray | None, n: int, splits: int, rounds: int) -> list[Row]:
    pairs = World("mixed", popularity=views).draw(n, seed=0)
    drawing = measure.timed(lambda: held_out.split_train(0, pairs.subjects, splits, TRAIN_SHARE))
    train = drawing.result
    columns = {
        "popularity": pairs.signal,
        "closed": pairs.right_above,
        "augmented": pairs.right_below,
    }
    frame = pd.DataFrame(columns)
    frame["relation"] = pairs.relations
    settings = tuning.DEFAULTS.model_copy(
        update={"min_questions": 1}
    )  # the notebook pools no relations

    def judged(search: str) -> pd.DataFrame:
        return held_out.judge(pairs, train, held_out.fit(pairs, train, search, settings)).table

    works = {"notebook": lambda: notebook.run(frame, train.T)[1]} | {
        name: partial(judged, name) for name in SEARCHES
    }
    run = measure.best({name: partial(measure.timed, work) for name, work in works.items()}, rounds)
    for name in ("adaptive", "always", "never", "retrieved", "train_adaptive"):
        np.testing.assert_allclose(
            run["bins"].result[name], run["notebook"].result[name], rtol=1e-12, err_msg=name
        )
    what = (
        f"thresholds, {len(frame):,} questions x {len(pairs.members())} relations x {splits} splits"
    )
    ways = {name: run[name] for name in SEARCHES}
    ways["exact, and drawing the splits"] = run["exact"]._replace(
        cpu=run["exact"].cpu + drawing.cpu
    )
    peer = "the published notebook's way, its ten bins"
    return [
        measure.row(f"{what}, {name}", peer, "splits", splits, run["notebook"], one, memory=False)
        for name, one in ways.items()
    ]


def rows(quick: bool = False) -> list[Row]:
    popqa = measure.real("popqa/popQA.tsv")
    views = pd.read_csv(popqa, sep="\t")["s_pop"].to_numpy(float) if popqa else None
    return compare(views, *((400, 3, 1) if quick else (14_267, 100, 3)))
