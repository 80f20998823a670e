"""Stage `train_lsr`: REPLUG LSR, which tunes a retriever to the frozen language model (REPLUG §4-5).

Training goes round by round. A round searches the top k documents of its queries, has the language model score those
that it has not scored yet, trains `lsr.refresh_steps` steps towards the language model's distribution, and then embeds
the corpora anew.

data/models/lsr/<name> is the encoder that `lsr.keep` names, a Hugging Face folder like the untuned retriever's. Its
model card, README.md, says which language model it was tuned to, and by which likelihood.
data/metrics/lsr_<name>.json has the look before training, the training curve, and the validation of each round's
encoder. The look says, on a sample of training queries, whether the language model can teach the retriever: one that
judges documents worse than the retriever makes it worse. Where answers are known, both are judged by the documents that
hold one. On texts, the documents' gains for the language model say how much there is to learn, and the entropy of Q how
much of it Q shows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from pipelines import draws, intervals, methods
from pipelines.errors import LongtailError
from pipelines.intervals import interval
from pipelines.lsr import objective
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

if TYPE_CHECKING:
    from pipelines.lsr.rounds import Refresher, Trainer, TrainingFiles
    from pipelines.lsr.training_queries import CorpusQueries
    from pipelines.params.params import LSR

METRICS = Path("data/metrics")
SECTIONS = ("seed", "language", "compute", "lm", "parts", "retriever", "lsr", "answer")
POINTS = 200  # the most points of the curve in the metrics
SAMPLE = 64  # training queries of each corpus in the look
RESAMPLES = 1000
BETTER = "raise lsr.n_shots, or name a larger model as lsr.lm"
UNIFORM, SPIKE = 0.97, 0.03  # entropies of Q beyond which there is little to learn


def train_retriever(params: SimpleNamespace) -> stage.Metrics:
    """Tune a retriever; write data/models/lsr/<name> and data/metrics/lsr_<name>.json.

    `params` are this retriever's (methods.with_retriever). A killed run resumes to the same result. LongtailError if
    there is nothing to learn.
    """
    from pipelines.lsr import rounds, training_queries
    from pipelines.lsr.rounds import Trainer, TrainingFiles
    from pipelines.retrieval.embeddings import forget_embeddings
    from pipelines.retrieval.encoder import EXACT, Encoder
    from pipelines.storage import checkpoint

    rounds.make_deterministic()
    corpora = training_queries.read_training_queries(params)
    schedule = training_queries.Schedule(corpora, params.lsr, params.seed)
    untuned, name = (
        methods.encoder_folder(methods.Method("dense", params.retrieves)),
        f"train_lsr@{params.retrieves}",
    )
    encoder = Encoder.open(untuned, params.retriever, params.compute, EXACT)
    files = TrainingFiles(name, *_result_depends_on(params, corpora))
    with rounds.Refresher(params, corpora, schedule, files) as refresher:
        looked = look(refresher, params)
        check(name, looked, params.lsr)
        trainer = Trainer(encoder, corpora, schedule, params.lsr, [row["beta"] for row in looked])
        progress = {"curve": [], "validation": []} | files.load(
            encoder.parameters(), trainer.optimizer
        )
        curve, validation = progress["curve"], progress["validation"]
        _train_rounds(trainer, files, curve, validation, refresher)
        scored = refresher.asked()

    kept = _kept(validation, params.lsr)
    if not kept:
        print(
            f"{name}: no tuned encoder validates better than the untuned one, which is kept",
            flush=True,
        )
    with atomic(methods.encoder_folder(methods.Method("lsr", params.retrieves))) as out:
        shutil.copytree(files.of_step("model", kept) if kept else untuned, out)
        (out / "README.md").write_text(_card(params.retrieves, params.lsr, kept), encoding="utf-8")
    size = -(-len(curve) // POINTS)
    stretches = (
        curve[start : start + size] for start in range(0, len(curve), size)
    )  # the last may be shorter
    thinned = [
        {column: sum(row[column] for row in rows) / len(rows) for column in rows[0]}
        for rows in stretches
    ]
    (after,) = (row for row in validation if row["step"] == kept)
    ends = {"before": validation[0], "after": after, "last": thinned[-1]}
    named = {
        f"{column}_{when}": row[column]
        for when, row in ends.items()
        for column in row
        if column != "step"
    }
    figures = {"kept_step": kept, **named} | {
        f"queries_{corpus.name}": corpus.train for corpus in corpora
    }
    told = {"look": looked, "curve": thinned, "validation": validation}
    write_json(METRICS / f"lsr_{params.retrieves}.json", figures | told)
    checkpoint.forget_checkpoints(name)
    for corpus in corpora:
        forget_embeddings(corpus.stage)
    columns = {
        f"{prefix}{column}": [row[column] for row in rows]
        for prefix, rows in (("", curve), ("validation_", validation))
        for column in rows[0]
        if column != "step"
    }
    return figures | scored | columns


def _train_rounds(
    trainer: Trainer,
    files: TrainingFiles,
    curve: list[dict],
    validation: list[dict],
    refresher: Refresher,
) -> None:
    """Train round by round, from where `curve` ends; each round's encoder adds a row to `validation`."""
    from tqdm import tqdm

    lsr, schedule = trainer.lsr, trainer.schedule
    with tqdm(
        total=lsr.steps, initial=len(curve), desc="train_lsr", unit="step", mininterval=2
    ) as bar:
        for number in range(schedule.rounds):
            steps = schedule.steps(number)
            if steps and steps.stop <= len(curve):
                continue  # a killed run did it
            row, candidates = refresher.make_round(number)
            if row["step"] not in {other["step"] for other in validation}:
                validation.append(row)
            if not steps:
                break
            trainer.start_round(candidates)
            for step in range(len(curve), steps.stop):
                curve.append({"step": step, **trainer.step(step)})
                bar.update()
                needed, last = {steps.start}, len(curve) == steps.stop
                if last:
                    needed = {len(curve)}
                    with atomic(files.of_step("model", len(curve))) as folder:
                        trainer.encoder.save(folder)
                if last or len(curve) % lsr.checkpoint_steps == 0:
                    progress = {"step": len(curve), "curve": curve, "validation": validation}
                    files.save(progress, trainer.encoder.parameters(), trainer.optimizer)
                    files.keep(
                        "model",
                        needed | ({_kept(validation, lsr)} if len(validation) > 1 else set()),
                    )


def _card(name: str, lsr: LSR, kept: int) -> str:
    """The model card of a tuned encoder; its front matter has all params of LSR and the step that is kept."""
    right, scores = (
        "whether its own answer after a document is right",
        f"{lsr.likelihood} of a text after a document",
    )
    front = yaml.safe_dump(
        {"tags": ["replug-lsr"], "lsr": lsr.model_dump() | {"kept_step": kept}}, sort_keys=False
    )
    said = f"Tuned by REPLUG LSR to {lsr.lm}, by {right if lsr.likelihood == 'answer_right' else scores}."
    return f"---\n{front}---\n# {name}\n\n{said}\n"


def _kept(validation: list[dict], lsr: LSR) -> int:
    """The step of the encoder that is kept, 0 being the untuned one: the last, or the best.

    That finds an answer to the most questions with its first document, then has the fewest bits per byte, then is
    first.
    """
    if lsr.keep == "last":
        return validation[-1]["step"]
    bits = next((name for name in validation[0] if name.startswith("bpb")), "")
    return min(validation, key=lambda row: (-row.get("recall_at_1", 0.0), row.get(bits, 0.0)))[
        "step"
    ]


def _result_depends_on(params: SimpleNamespace, corpora: list[CorpusQueries]) -> tuple[Any, ...]:
    """All that a checkpoint's key hashes; an index's meta.json stands for its documents, encoder and embeddings."""
    from pipelines.lm.open_lm import supervising_lm
    from pipelines.work import code

    folder, lm = supervising_lm(params)
    served = lm.http and (lm.http.url, lm.http.tokenizer, lm.http.max_tokens, lm.http.extra)
    teacher = (
        folder,
        lm.source,
        lm.path,
        lm.dtype,
        lm.batch_tokens,
        lm.chat,
        params.answer.new_tokens,
        served,
    )
    queries = [corpus.digest() for corpus in corpora]
    indexes = [
        methods.index_folder(methods.Method("dense", params.retrieves), corpus.corpus) / "meta.json"
        for corpus in corpora
    ]
    settings = (
        params.seed,
        params.compute.device,
        params.compute.threads,
        params.retriever,
        params.lsr,
    )
    return code.fingerprint("pipelines.lsr.train_lsr"), *settings, *teacher, queries, *indexes


def look(refresher: Refresher, params: SimpleNamespace) -> list[dict[str, Any]]:
    """A row for each corpus of queries, whose keys data/README.md explains; figures are as Interval.as_json."""
    lsr, rows = params.lsr, []
    for i, corpus in enumerate(refresher.corpora):
        drawn = draws.sample(
            params.seed, "lsr look", list(corpus.queries.ids[: corpus.train]), SAMPLE
        )
        row = {
            "corpus": corpus.name,
            "queries": len(drawn),
            "documents": len(refresher.ranks),
            "beta": lsr.beta,
        }
        rows.append(row)
        if not len(drawn):
            continue
        positions, similarities = refresher.candidates(i, drawn)
        scored = refresher.score(i, drawn, positions)
        teach = objective.informative(scored.targets)
        row["uniform"] = 1 - float(teach.mean())
        if lsr.q_entropy:
            row["beta"] = objective.beta_of_entropy(scored.targets[teach], lsr.q_entropy)
        row["entropy"] = objective.entropy(scored.targets[teach], row["beta"])
        if corpus.answers is None:
            gains = scored.gains
            figures = {
                "gain_first": gains[:, 0],
                "gain_mean": gains.mean(1),
                "gain_best": gains.max(1),
            }
        else:
            figures = judged(
                scored.targets, similarities, refresher.hold_answers(i, drawn, positions)
            )
        mean = partial(_mean, params.seed, corpus.name, corpus.clusters[drawn])
        row |= {name: mean(name, values).as_json() for name, values in figures.items()}
    return rows


def judged(lm: np.ndarray, retriever: np.ndarray, holds: np.ndarray) -> dict[str, np.ndarray]:
    """Each question's figures of `look` from two scores and which documents hold an answer, (n, k) each.

    Both AUCs are over the pairs that the language model tells apart, NaN without one: from others the retriever learns
    nothing. Of equal documents the best is the retriever's.
    """
    pairs = holds[:, :, None] & ~holds[:, None, :] & (lm[:, :, None] != lm[:, None, :])
    by_lm, by_retriever = aucs(lm, pairs), aucs(retriever, pairs)
    best_lm, best_retriever = (
        np.take_along_axis(holds, scores.argmax(1)[:, None], 1)[:, 0].astype(float)
        for scores in (lm, retriever)
    )
    return {
        "auc_lm": by_lm,
        "auc_retriever": by_retriever,
        "auc_gain": by_lm - by_retriever,
        "best_lm": best_lm,
        "best_retriever": best_retriever,
        "best_gain": best_lm - best_retriever,
    }


def aucs(scores: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The share of the pairs (n, k, k) whose first document has the larger score, ties half: scores (n, k) -> (n,)."""
    first, second = scores[:, :, None], scores[:, None, :]
    wins = (first > second) + 0.5 * (first == second)
    with np.errstate(invalid="ignore"):
        return (wins * pairs).sum((1, 2)) / pairs.sum((1, 2))


def check(name: str, rows: list[dict[str, Any]], lsr: LSR) -> None:
    """Print what was seen and what to change.

    Raises LongtailError if Q is uniform, to three digits, for all queries, and if a required better teacher is missing.
    """
    for row in rows:
        seen = ", ".join(f"{key} {_shown(value)}" for key, value in row.items() if key != "corpus")
        print(f"{name}: {row['corpus']}: {seen}", flush=True)
        for said in advice(row):
            print(f"warning: {name}: {row['corpus']}: {said}", flush=True)
    worse = [row for row in rows if _no_better(row)]
    if lsr.require_better_teacher and worse:
        raise LongtailError(
            f"lsr.require_better_teacher: {worse[0]['corpus']}: {next(advice(worse[0]))}"
        )
    entropies = [row["entropy"] for row in rows if "entropy" in row]
    if all(round(entropy, 3) == 1.0 for entropy in entropies):
        same = f"its answers are right with all documents or with none; {BETTER}"
        way = same if lsr.likelihood == "answer_right" else "use mean_logprob, or lower lsr.beta"
        raise LongtailError(
            f"the language model's distribution over documents is uniform (entropy {entropies[0]:.5f} of 1) with "
            f"lsr.likelihood {lsr.likelihood}, so the retriever can learn nothing; {way}"
        )


def advice(row: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a row of `look`, and what to change."""
    if row.get("uniform") == 1:
        yield f"to the language model all documents of a query are equal, so it has nothing to teach; {BETTER}"
        return
    if _no_better(row):
        yield (
            "the language model tells documents with an answer from others no better than the retriever does (AUC "
            f"{row['auc_lm']['value']:.2f} against {row['auc_retriever']['value']:.2f}), so it has nothing to teach; "
            f"{BETTER}"
        )
    entropy = row.get("entropy", 0.5)
    if entropy > UNIFORM or entropy < SPIKE:
        shape, way = (
            ("nearly uniform", "lower")
            if entropy > UNIFORM
            else ("nearly one document's alone", "raise")
        )
        yield f"Q is {shape} (entropy {entropy:.3f} of 1); {way} lsr.beta, or set lsr.q_entropy"


def _no_better(row: dict[str, Any]) -> bool:
    return row.get("uniform") == 1 or interval(row.get("auc_gain")).value <= 0


def _mean(
    seed: int, corpus: str, clusters: np.ndarray, name: str, values: np.ndarray
) -> intervals.Interval:
    """The mean of the values (n,) that are known, with an interval clustered by subject or source document."""
    known = np.isfinite(values)
    if not known.any():
        return intervals.NOTHING
    generator = draws.generator(seed, "lsr look", f"{corpus} {name}")
    return intervals.mean(values[known], generator, RESAMPLES, clusters[known])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        figure = interval(value)
        known = np.isfinite(figure.value)
        return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]" if known else "not known"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    name = stage.arguments(__doc__, retriever="one of params.yaml's parts.tuned").retriever
    stage.run(
        f"train_lsr@{name}",
        SECTIONS,
        lambda params: train_retriever(methods.with_retriever(params, name)),
        out=f"{methods.encoder_folder(methods.Method('lsr', name))} and {METRICS}/lsr_{name}.json",
    )
