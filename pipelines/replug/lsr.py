"""Stage `train_lsr`: REPLUG LSR, the retriever tuned to the frozen language model (REPLUG §4-5).

Round by round: search the top k for every query, have the language model score what it did not score before, train
`lsr.refresh_steps` steps towards its distribution, embed the corpora anew. data/metrics/lsr.json holds the curve and
the validation before, between and after; data/models/lsr is a Hugging Face folder like the untuned retriever's.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pipelines import shards, stage
from pipelines.errors import LongtailError

CORPORA = Path("data/corpus")
POPQA = Path("data/popqa/popqa.parquet")
RETRIEVER = Path("data/models/retriever")
INDEXES = Path("data/index")
OUT = Path("data/models/lsr")
METRICS = Path("data/metrics/lsr.json")
SECTIONS = ("seed", "compute", "lm", "lms", "retriever", "index", "lsr")
POINTS = 200  # of the curve


def train(params: SimpleNamespace) -> stage.Metrics:
    """Tune data/models/retriever; write data/models/lsr and data/metrics/lsr.json.

    Raises LongtailError where there are no queries to learn from, or where the language model's distribution over the
    documents is uniform, so that there is nothing to learn.
    """
    import torch
    from tqdm import trange

    from pipelines.lm.open import main_lm, open_lm
    from pipelines.replug.tuning import Tuner
    from pipelines.retrieval.encoder import Encoder

    torch.use_deterministic_algorithms(True)
    lsr = params.lsr
    lm = open_lm(*main_lm(params), params.compute, scoring=True)
    encoder = Encoder.open(RETRIEVER, params.retriever, params.compute)
    sides = _sides(params, encoder)
    tuner = Tuner(encoder, lm, sides, lsr, params.seed)
    curve, validation = [], [{"step": 0, **tuner.judge()}]
    for step in trange(lsr.steps, desc="train_lsr", unit="step", mininterval=2):
        if step and step % lsr.refresh_steps == 0:
            tuner.rebuild(params.index, params.compute)
            validation.append({"step": step, **tuner.judge()})
        if step % lsr.refresh_steps == 0:
            _informative(tuner.ask(step), params)
        curve.append({"step": step, **tuner.step(step)})
    tuner.rebuild(params.index, params.compute)
    validation.append({"step": lsr.steps, **tuner.judge()})

    with shards.atomic(OUT) as folder:
        encoder.save(folder)
    counts = {f"queries_{side.name}": side.train for side in sides}
    counts |= {f"pairs_{side.name}": side.scored.num_rows for side in sides}
    figures = _figures(validation, curve)
    shards.write_json(METRICS, figures | counts | {"curve": _thinned(curve), "validation": validation})
    for side in sides:
        side.forget()
    return figures | counts | lm.usage | {name: [row[name] for row in curve] for name in curve[0] if name != "step"}


def _sides(params: SimpleNamespace, encoder):
    """Both corpora with their queries; `lsr.queries` says which of them are learnt from, all held-out ones judge."""
    import numpy as np

    from pipelines.lm.open import main_lm
    from pipelines.replug.queries import language_modelling, questions
    from pipelines.replug.tuning import Side
    from pipelines.retrieval.dense import Dense

    lsr, model = params.lsr, shards.key_of(*main_lm(params))

    def side(name: str, train, judging, pages) -> Side:
        docs = CORPORA / name / "docs.parquet"
        queries = train.and_then(judging)
        index = Dense.load(INDEXES / name / "dense", docs, RETRIEVER, encoder, params.compute).index
        said = (queries.ids.tolist(), queries.contexts.tolist(), queries.continuations.tolist(), queries.separator)
        return Side(name, docs, queries, len(train), pages, index, shards.key_of(model, docs, *said))

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


def _informative(entropy: float, params: SimpleNamespace) -> None:
    if round(entropy, 3) == 1.0:
        raise LongtailError(
            f"the language model's distribution over the {params.lsr.top_k} documents is uniform (entropy "
            f"{entropy:.5f} of 1) with lsr.likelihood {params.lsr.likelihood} and lsr.beta {params.lsr.beta}, so the "
            "retriever can learn nothing; use mean_logprob, or lower lsr.beta"
        )


def _figures(validation: list[dict], curve: list[dict]) -> dict[str, float]:
    """The validation before and after, and the last steps' divergence and entropies."""
    ends = {"before": validation[0], "after": validation[-1], "last": _thinned(curve)[-1]}
    return {f"{name}_{when}": row[name] for when, row in ends.items() for name in row if name != "step"}


def _thinned(curve: list[dict]) -> list[dict]:
    """Means over at most POINTS stretches of steps of like length."""
    size = -(-len(curve) // POINTS)
    stretches = (curve[start : start + size] for start in range(0, len(curve), size))
    return [{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} for rows in stretches]


def main() -> None:
    stage.run("train_lsr", SECTIONS, train, out=f"{OUT} and {METRICS}")


if __name__ == "__main__":
    main()
