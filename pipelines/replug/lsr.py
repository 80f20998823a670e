"""Stage `train_lsr`: REPLUG LSR, the retriever tuned to the frozen language model (REPLUG §4-5).

Round by round: search the top k for every query, have the language model score what it did not score before, train
`lsr.refresh_steps` steps towards its distribution, embed the corpora anew. data/metrics/lsr.json holds the curve and
the validation before, between and after; data/models/lsr, a Hugging Face folder like the untuned retriever's, the
encoder whose validation was best.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipelines import shards, stage
from pipelines.errors import LongtailError

if TYPE_CHECKING:
    from pipelines.lm.protocol import LanguageModel
    from pipelines.params import LSR
    from pipelines.replug.checkpoint import Checkpoints, Progress
    from pipelines.replug.tuning import Side, Tuner
    from pipelines.retrieval.encoder import Encoder

CORPORA = Path("data/corpus")
POPQA = Path("data/popqa/popqa.parquet")
RETRIEVER = Path("data/models/retriever")
INDEXES = Path("data/index")
OUT = Path("data/models/lsr")
METRICS = Path("data/metrics/lsr.json")
SECTIONS = ("seed", "compute", "lm", "lms", "retriever", "index", "lsr")
POINTS = 200  # of the curve
ENOUGH = 1000  # queries, of a long epoch, to say whether the language model tells documents apart


def train(params: SimpleNamespace) -> stage.Metrics:
    """Tune data/models/retriever; write data/models/lsr and data/metrics/lsr.json.

    Killed at any step, it goes on to the same result. Raises LongtailError where there are no queries to learn from,
    where the language model's distribution over the documents is uniform, so that there is nothing to learn, and where
    a server's answers may cost more than `lsr.max_cost`.
    """
    import torch

    from pipelines.lm.open import main_lm, open_lm
    from pipelines.replug import checkpoint, cost
    from pipelines.replug.tuning import Tuner
    from pipelines.retrieval.embeddings import forget
    from pipelines.retrieval.encoder import Encoder

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS's sums are in no fixed order
    torch.use_deterministic_algorithms(True)
    folder, settings = main_lm(params)
    lm = open_lm(folder, settings, params.compute, scoring=True)
    encoder = Encoder.open(RETRIEVER, params.retriever, params.compute)
    sides = _sides(params, encoder, lm)
    tuner = Tuner(encoder, sides, params.lsr, params.seed)
    kept = checkpoint.Checkpoints(_key(params, sides))
    progress, candidates = kept.load(encoder, tuner.optimizer)
    if progress.step:
        print(f"train_lsr: goes on from step {progress.step}", flush=True)
    elif settings.source == "http":
        cost.check(lm, tuner, settings.http)
    if progress.looks:
        tuner.open(kept.index(progress.validation[-1]["step"]), progress.looks, params.compute)
    if candidates:
        tuner.ask(candidates)
    _learn(tuner, kept, progress, params)

    with shards.atomic(OUT) as out:
        shutil.copytree(kept.best(progress.best), out)
    counts = {f"queries_{side.name}": side.train for side in sides}
    figures = _figures(progress) | counts
    rows = {"curve": _thinned(progress.curve), "validation": progress.validation}
    shards.write_json(METRICS, figures | rows)
    checkpoint.forget()
    for side in sides:
        forget(side.stage)
        if not params.lsr.keep_scores:
            side.scores.forget()
    made = {f"scored_{side.name}": side.scores.made for side in sides}
    curves = {name: [row[name] for row in progress.curve] for name in progress.curve[0] if name != "step"}
    judged = {name: [row[name] for row in progress.validation] for name in progress.validation[0] if name != "step"}
    return figures | made | lm.usage | curves | {f"validation_{name}": curve for name, curve in judged.items()}


def _learn(tuner: Tuner, kept: Checkpoints, progress: Progress, params: SimpleNamespace) -> None:
    """Step by step to the end, or until validation has not improved for `patience` refreshes.

    The best of all encoders that were judged is kept; the untuned one is none of them.
    """
    from tqdm import tqdm

    lsr, epoch = params.lsr, -(-min(len(tuner.owners), ENOUGH) // params.lsr.batch_size)

    def save() -> None:
        kept.save(progress, tuner.encoder, tuner.optimizer, tuner.candidates)

    with tqdm(total=lsr.steps, initial=progress.step, desc="train_lsr", unit="step", mininterval=2) as bar:
        while True:
            step, validation = progress.step, progress.validation
            due = step % lsr.refresh_steps == 0 or step == lsr.steps
            if due and (not validation or validation[-1]["step"] < step):
                if step:
                    progress.looks = tuner.rebuild(kept.index(step), params.index, params.compute)
                validation.append({"step": step, **tuner.judge()})
                if step and _best(validation) == step:
                    with shards.atomic(kept.best(step)) as folder:
                        tuner.encoder.save(folder)
                    progress.best = step
                save()
            if step == lsr.steps or _in_vain(validation, lsr.patience):
                return
            if due and progress.asked != step:
                tuner.ask(tuner.search(step))
                progress.asked = step
                save()
            progress.curve.append({"step": step, **tuner.step(step)})
            progress.step += 1
            bar.update()
            _informative(progress.curve, min(epoch, lsr.steps), lsr)
            if progress.step % lsr.checkpoint_steps == 0 or progress.step % lsr.refresh_steps == 0:
                save()


def _best(validation: list[dict]) -> int:
    """The step of the fewest bits per byte, or where no corpus's queries judge, of the highest recall; the first."""
    bits = [name for name in validation[0] if name.startswith("bpb")]
    return min(validation[1:], key=lambda row: row[bits[0]] if bits else -row.get("recall_at_1", 0.0))["step"]


def _in_vain(validation: list[dict], patience: int | None) -> bool:
    if patience is None or len(validation) == 1:
        return False
    return sum(row["step"] > _best(validation) for row in validation) >= patience


def _key(params: SimpleNamespace, sides: list[Side]) -> str:
    """Of all that the result depends on; the indexes' meta.json name documents, encoder and embeddings."""
    metas = [INDEXES / side.name / "dense" / "meta.json" for side in sides]
    of_sides = [(side.name, side.train, side.scores.key, side.queries.texts.tolist()) for side in sides]
    pages = [side.pages if side.pages is None else side.pages.tolist() for side in sides]
    settings = (params.seed, params.compute.device, params.compute.threads, params.retriever, params.index, params.lsr)
    return shards.key_of(*settings, of_sides, pages, *metas)


def _sides(params: SimpleNamespace, encoder: Encoder, lm: LanguageModel) -> list[Side]:
    """Both corpora with their queries; `lsr.queries` says which of them are learnt from, all held-out ones judge."""
    import numpy as np

    from pipelines.lm.open import main_lm
    from pipelines.replug.queries import language_modelling, questions
    from pipelines.replug.scores import Scores, key_of_lm
    from pipelines.replug.tuning import Side
    from pipelines.retrieval.dense import Dense
    from pipelines.retrieval.meta import fingerprint

    lsr, key = params.lsr, key_of_lm(*main_lm(params), params.compute)
    if not lsr.keep_scores:  # only this very training, once killed, may find them
        key = shards.key_of(key, params.seed, lsr, params.retriever, params.index, fingerprint(RETRIEVER))

    def side(name: str, train, judging, pages) -> Side:
        docs = CORPORA / name / "docs.parquet"
        queries = train.and_then(judging)
        index = Dense.load(INDEXES / name / "dense", docs, RETRIEVER, encoder, params.compute).index
        scores = Scores(f"train_lsr-{name}", lm, key, queries, docs, len(train))
        return Side(name, docs, queries, len(train), pages, index, scores)

    of_lm = lsr.lm_queries if lsr.queries != "qa" else 0
    of_qa = lsr.qa_queries if lsr.queries != "lm" else 0
    judges, *_ = language_modelling(CORPORA / "pile", "validation", params.seed, lsr.validation_queries)
    learnt, *_ = language_modelling(CORPORA / "pile", "train", params.seed, of_lm)
    asked, held, pages = questions(POPQA, params.seed, lsr.validation_share, of_qa, lsr.validation_queries)
    if not len(learnt) + len(asked):
        raise LongtailError(
            f"lsr.queries is {lsr.queries}, but there are no queries of that kind to learn from; "
            "raise corpus.pile.query_share or popqa.train_share"
        )
    both = [("pile", learnt, judges, None), ("wikipedia", asked, held, np.asarray(pages, object))]
    return [side(*one) for one in both if len(one[1]) + len(one[2])]


def _informative(curve: list[dict], epoch: int, lsr: LSR) -> None:
    """Raise LongtailError where Q was uniform, to three digits, for a whole epoch of steps or ENOUGH queries."""
    if len(curve) % epoch:
        return
    entropy = sum(row["entropy_lm"] for row in curve[-epoch:]) / epoch
    if round(entropy, 3) == 1.0:
        raise LongtailError(
            f"the language model's distribution over the {lsr.top_k} documents is uniform (entropy {entropy:.5f} of 1 "
            f"over {epoch} steps) with lsr.likelihood {lsr.likelihood} and lsr.beta {lsr.beta}, so the retriever can "
            "learn nothing; use mean_logprob, or lower lsr.beta"
        )


def _figures(progress: Progress) -> dict[str, float]:
    """The validation before and of the encoder kept, and the last steps' divergence, entropies and gain."""
    (after,) = (row for row in progress.validation if row["step"] == progress.best)
    ends = {"before": progress.validation[0], "after": after, "last": _thinned(progress.curve)[-1]}
    named = {f"{name}_{when}": row[name] for when, row in ends.items() for name in row if name != "step"}
    return {"best_step": progress.best, **named}


def _thinned(curve: list[dict]) -> list[dict]:
    """Means over at most POINTS stretches of steps of like length."""
    size = -(-len(curve) // POINTS)
    stretches = (curve[start : start + size] for start in range(0, len(curve), size))
    return [{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} for rows in stretches]


def main() -> None:
    stage.run("train_lsr", SECTIONS, train, out=f"{OUT} and {METRICS}")


if __name__ == "__main__":
    main()
