"""Stage `train_lsr`: REPLUG LSR, the retriever tuned to the frozen language model (REPLUG §4-5).

Round by round: search the top k for every query, have the language model score what it did not score before, train
`lsr.refresh_steps` steps towards its distribution, embed the corpora anew. With `lsr.refresh` async, all but training
is done a round ahead, beside it. data/metrics/lsr.json holds the curve and the validation before, between and after;
data/models/lsr, a Hugging Face folder like the untuned retriever's, the encoder whose validation was best.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pipelines import shards, stage
from pipelines.errors import LongtailError

if TYPE_CHECKING:
    from pipelines.lsr.refresh import Make
    from pipelines.lsr.rounds import Progress, Rounds
    from pipelines.lsr.training_queries import Side
    from pipelines.lsr.tuning import Tuner
    from pipelines.params import LSR

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
    from pipelines import checkpoint
    from pipelines.lsr import refresh, training_queries
    from pipelines.lsr.gradients import Gradients
    from pipelines.lsr.rounds import Progress, Rounds
    from pipelines.lsr.tuning import Tuner
    from pipelines.retrieval.encoder import EXACT, Encoder

    refresh.reproducible()
    both = training_queries.read(params)
    order = training_queries.Order(both, params.lsr, params.seed)
    devices = [params.compute.device, *(f"cuda:{number}" for number in range(1, refresh.gpus(params)))]
    computes = [params.compute.model_copy(update={"device": device}) for device in devices]
    encoder, *copies = [Encoder.open(refresh.RETRIEVER, params.retriever, one, EXACT) for one in computes]
    tuner = Tuner(Gradients(encoder, copies, params.lsr), both, order, params.lsr)
    kept = Rounds("train_lsr", *_parts(params, both, devices))
    progress = Progress(**kept.load(encoder.parameters(), tuner.optimizer))
    with refresh.rounds(params, both, order, kept) as begin:
        asked = _learn(tuner, kept, progress, begin)

    best = _best(progress.validation)
    with shards.atomic(OUT) as out:
        shutil.copytree(kept.model(best), out)
    counts = {f"queries_{side.name}": side.train for side in both}
    figures = _figures(progress, best) | counts
    rows = {"curve": _thinned(progress.curve), "validation": progress.validation}
    shards.write_json(METRICS, figures | rows)
    checkpoint.forget("train_lsr")
    refresh.forget(params, both)
    curves = {name: [row[name] for row in progress.curve] for name in progress.curve[0] if name != "step"}
    judged = {name: [row[name] for row in progress.validation] for name in progress.validation[0] if name != "step"}
    return figures | asked | curves | {f"validation_{name}": curve for name, curve in judged.items()}


def _learn(tuner: Tuner, kept: Rounds, progress: Progress, begin: Callable[[int], Make]) -> dict[str, float]:
    """Round by round to the end, or until validation has not improved for `patience` refreshes.

    Every round's last encoder is judged, with an index of its own: before the next round, or where that is prepared a
    round ahead, while it trains; so there, once `patience` ends training, the encoder of that moment is not judged. Of
    those judged the best is kept; the untuned one is none of them. Returns what the language model was asked.
    """
    from tqdm import tqdm

    lsr, order = tuner.settings, tuner.order
    epoch = min(-(-min(len(order.owners), ENOUGH) // lsr.batch_size), lsr.steps)

    def save() -> None:
        best = [_best(progress.validation)] if len(progress.validation) > 1 else []
        models = {order.encoder(number) for number in range(progress.round + 1, order.rounds)}
        kept.keep(progress, tuner.encoder, tuner.optimizer, models.union(best))

    make = begin(progress.round)
    with tqdm(total=lsr.steps, initial=progress.step, desc="train_lsr", unit="step", mininterval=2) as bar:
        for number in range(progress.round, order.rounds):
            asked = make()
            validation, candidates = kept.read(number)
            progress.round = number
            if validation["step"] not in {row["step"] for row in progress.validation}:
                progress.validation.append(validation)
            if number == order.rounds - 1 or _in_vain(progress.validation, lsr.patience):
                break
            make = begin(number + 1)
            steps = order.steps(number)
            tuner.take(candidates)
            for step in range(progress.step, steps.stop):
                progress.curve.append({"step": step, **tuner.step(step)})
                progress.step += 1
                bar.update()
                _informative(progress.curve, epoch, lsr)
                if progress.step == steps.stop:
                    with shards.atomic(kept.model(progress.step)) as folder:
                        tuner.encoder.save(folder)
                if progress.step % lsr.checkpoint_steps == 0 or progress.step == steps.stop:
                    save()
    return asked


def _best(validation: list[dict]) -> int:
    """The step of the fewest bits per byte, or where no corpus's queries judge, of the highest recall; the first."""
    bits = [name for name in validation[0] if name.startswith("bpb")]
    return min(validation[1:], key=lambda row: row[bits[0]] if bits else -row.get("recall_at_1", 0.0))["step"]


def _in_vain(validation: list[dict], patience: int | None) -> bool:
    if patience is None or len(validation) == 1:
        return False
    return sum(row["step"] > _best(validation) for row in validation) >= patience


def _parts(params: SimpleNamespace, both: list[Side], devices: list[str]) -> tuple[Any, ...]:
    """All that the result depends on; the indexes' meta.json name documents, encoder and embeddings."""
    from pipelines.lsr import refresh
    from pipelines.scoring import score_cache

    metas = [refresh.INDEXES / "dense" / side.name / "meta.json" for side in both]
    learnt = [(side.name, side.train, score_cache.hashes(side.queries).tobytes()) for side in both]
    pages = [side.pages if side.pages is None else side.pages.tolist() for side in both]
    settings = (params.seed, devices, params.compute.threads, params.retriever, params.index, params.lsr)
    code = sorted(file for room in ("replug", "retrieval") for file in Path(__file__).parents[1].glob(f"{room}/*.py"))
    return *settings, refresh.key_of_scores(params), learnt, pages, *metas, *code


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


def _figures(progress: Progress, best: int) -> dict[str, float]:
    """The validation before and of the encoder kept, and the last steps' divergence, entropies and gain."""
    (after,) = (row for row in progress.validation if row["step"] == best)
    ends = {"before": progress.validation[0], "after": after, "last": _thinned(progress.curve)[-1]}
    named = {f"{name}_{when}": row[name] for when, row in ends.items() for name in row if name != "step"}
    return {"best_step": best, **named}


def _thinned(curve: list[dict]) -> list[dict]:
    """Means over at most POINTS stretches of steps of like length."""
    size = -(-len(curve) // POINTS)
    stretches = (curve[start : start + size] for start in range(0, len(curve), size))
    return [{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} for rows in stretches]


def main() -> None:
    stage.run("train_lsr", SECTIONS, train, out=f"{OUT} and {METRICS}")


if __name__ == "__main__":
    main()
