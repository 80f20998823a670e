"""Stage `train_lsr`: REPLUG LSR tunes a retriever to the frozen language model (REPLUG §4-5).

Training goes round by round. A round searches the top k documents of its queries, has the language
model score those that it has not scored yet, trains `lsr.refresh_steps` steps towards the language
model's distribution, and then embeds the corpora anew.

data/models/lsr/<name> is the encoder that `lsr.keep` names, a Hugging Face folder like the untuned
retriever's. Its model card, README.md, says which language model it was tuned to, and by which
likelihood. data/metrics/lsr_<name>.json has the look before training (teacher.py), the training
curve, and the validation of each round's encoder.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pipelines import methods
from pipelines.lsr import teacher
from pipelines.lsr.lsr_settings import Settings
from pipelines.methods import Method
from pipelines.params.params import BETTER
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

if TYPE_CHECKING:
    from pipelines.lsr.rounds import Refresher, TrainingFiles
    from pipelines.lsr.trainer import Trainer
    from pipelines.lsr.training_queries import CorpusQueries
    from pipelines.params.params import LSR

METRICS = Path("data/metrics")
CURVE_POINTS = 200  # points of the curve in the metrics, at most
CHECKPOINT_STEPS = 40  # steps between checkpoints, which a killed run goes on from

Row = dict[str, Any]


@dataclass
class Progress:
    """What training has measured so far."""

    curve: list[Row] = field(default_factory=list)  # a row for each step
    validation: list[Row] = field(default_factory=list)  # a row for each round's encoder


def train_retriever(settings: Settings, retriever: str) -> stage.Metrics:
    """Tune a retriever; write data/models/lsr/<name> and data/metrics/lsr_<name>.json.

    A killed run resumes to the same result. Raises LongtailError if there is nothing to learn.
    """
    from pipelines.lsr import rounds, training_queries
    from pipelines.lsr.trainer import Trainer
    from pipelines.retrieval.embeddings import forget_embeddings
    from pipelines.retrieval.encoder import EXACT, Encoder
    from pipelines.storage.work_store import WorkStore

    rounds.make_deterministic()
    lsr = settings.lsr
    corpora = training_queries.read_training_queries(settings, retriever)
    schedule = training_queries.Schedule(corpora, lsr, settings.seed)
    untuned = methods.encoder_folder(Method("dense", retriever))
    encoder = Encoder.open(untuned, settings.retriever[retriever], settings.compute, EXACT)
    name = f"train_lsr@{retriever}"
    files = rounds.TrainingFiles(name, training_key(settings, retriever, corpora))
    with rounds.Refresher(settings, retriever, corpora, schedule, files) as refresher:
        looks = teacher.look(refresher, settings)
        teacher.check(name, looks, lsr)
        betas = [row["beta"] for row in looks]
        trainer = Trainer(encoder, corpora, schedule, lsr, betas)
        progress = _load_progress(files, trainer)
        _train_rounds(trainer, files, progress, refresher)
        usage = refresher.usage()

    best = best_step(progress.validation, lsr)
    best_folder = files.model(best)
    if not best:
        best_folder = untuned
        reason = "no tuned encoder validates better than the untuned one, which is kept"
        print(f"{name}: {reason}")
    with atomic(methods.encoder_folder(Method("lsr", retriever))) as out:
        shutil.copytree(best_folder, out)
        (out / "README.md").write_text(_card(retriever, lsr, best), encoding="utf-8")

    curve = _thinned(progress.curve)
    figures = {"kept_step": best} | _ends(curve, progress.validation, best)
    for corpus in corpora:
        figures[f"queries_{corpus.name}"] = corpus.train
    tables = {"look": looks, "curve": curve, "validation": progress.validation}
    write_json(METRICS / f"lsr_{retriever}.json", figures | tables)
    WorkStore().forget(name)
    for corpus in corpora:
        forget_embeddings(corpus.stage)
    curves = _columns(progress.curve, "") | _columns(progress.validation, "validation_")
    return figures | usage | curves


def training_key(settings: Settings, retriever: str, corpora: list[CorpusQueries]) -> str:
    """The key of a training's checkpoints, which follows all that the result depends on.

    An index's meta.json stands for its documents, encoder and embeddings.
    """
    from pipelines.lm.open_lm import supervising_lm
    from pipelines.storage.work_store import content_key
    from pipelines.work import code

    folder, lm = supervising_lm(settings)
    server = None
    http = lm.http
    if http:
        server = (http.url, http.tokenizer, http.max_tokens, http.extra)
    index = Method("dense", retriever)
    indexes = [methods.index_folder(index, corpus.corpus) / "meta.json" for corpus in corpora]
    model = (lm.path, lm.dtype, lm.batch_tokens, lm.chat, server)
    digests = [corpus.digest() for corpus in corpora]
    compute = settings.compute
    depends_on = (
        settings.seed,
        compute.device,
        compute.threads,
        settings.retriever[retriever],
        settings.lsr,
        settings.answer.new_tokens,
        model,
        digests,
    )
    fingerprint = code.fingerprint("pipelines.lsr.train_lsr")
    return content_key(depends_on, fingerprint, folder, *indexes)


def _load_progress(files: TrainingFiles, trainer: Trainer) -> Progress:
    """Take the last checkpoint's encoder and optimizer, if there is one; returns its progress."""
    saved = files.load(trainer.encoder.parameters(), trainer.optimizer)
    if not saved:
        return Progress()
    return Progress(curve=saved["curve"], validation=saved["validation"])


def _train_rounds(
    trainer: Trainer, files: TrainingFiles, progress: Progress, refresher: Refresher
) -> None:
    """Train round by round, from where the curve of `progress` ends."""
    from tqdm import tqdm

    from pipelines.work.ahead import prepared

    schedule = trainer.schedule
    done = len(progress.curve)
    with tqdm(
        total=trainer.lsr.steps, initial=done, desc="train_lsr", unit="step", mininterval=2
    ) as bar:
        for number in range(schedule.rounds):
            steps = schedule.steps(number)
            if steps and steps.stop <= done:
                continue  # a killed run did it
            row, candidates = refresher.make_round(number)
            validated = [earlier["step"] for earlier in progress.validation]
            if row["step"] not in validated:
                progress.validation.append(row)
            if not steps:
                break

            trainer.start_round(candidates)
            missing = range(max(steps.start, done), steps.stop)
            in_thread = trainer.encoder.on_gpu
            for step, batch in prepared(missing, trainer.batch, in_thread=in_thread):
                progress.curve.append({"step": step, **trainer.step(step, batch=batch)})
                bar.update()
                _save_step(trainer, files, progress, steps)


def _save_step(trainer: Trainer, files: TrainingFiles, progress: Progress, steps: range) -> None:
    """Save a checkpoint if it is due, and after a round's last step the encoder, too."""
    lsr = trainer.lsr
    done = len(progress.curve)
    is_last = done == steps.stop
    if is_last:
        with atomic(files.model(done)) as folder:
            trainer.encoder.save(folder)
    if is_last or done % CHECKPOINT_STEPS == 0:
        state = {"step": done, "curve": progress.curve, "validation": progress.validation}
        files.save(state, trainer.encoder.parameters(), trainer.optimizer)
        needed = {done if is_last else steps.start}
        if len(progress.validation) > 1:
            needed.add(best_step(progress.validation, lsr))
        files.keep_models(needed)


def best_step(validation: list[Row], lsr: LSR) -> int:
    """The step of the encoder that `lsr.keep` names, the last or the best; 0 is the untuned one.

    The best has the best figure `best_by`. Of equal ones it is the first.
    """
    if lsr.keep == "last":
        return validation[-1]["step"]
    better = BETTER[lsr.best_by]
    return better(validation, key=itemgetter(lsr.best_by))["step"]


def _card(name: str, lsr: LSR, best: int) -> str:
    """The model card of a tuned encoder; its front matter has LSR's params and the step kept."""
    likelihood = f"{lsr.likelihood} of a text after a document"
    if lsr.likelihood == "answer_right":
        likelihood = "whether its own answer after a document is right"
    values = {"tags": ["replug-lsr"], "lsr": lsr.model_dump() | {"kept_step": best}}
    front = yaml.safe_dump(values, sort_keys=False)
    text = f"Tuned by REPLUG LSR to {lsr.lm}, by {likelihood}."
    if lsr.likelihood == "holds_answer":
        text = "Tuned by whether a document holds an answer, with the loss of REPLUG LSR."
    return f"---\n{front}---\n# {name}\n\n{text}\n"


def _thinned(curve: list[Row]) -> list[Row]:
    """The means over stretches of the curve, at most CURVE_POINTS; the last may be shorter."""
    size = -(-len(curve) // CURVE_POINTS)
    points = []
    for start in range(0, len(curve), size):
        rows = curve[start : start + size]
        point = {}
        for column in rows[0]:
            point[column] = sum(row[column] for row in rows) / len(rows)
        points.append(point)
    return points


def _ends(curve: list[Row], validation: list[Row], best: int) -> Row:
    """The validation of the untuned encoder and the kept one, and the curve's last point."""
    (after,) = [row for row in validation if row["step"] == best]
    rows = {"before": validation[0], "after": after, "last": curve[-1]}
    figures = {}
    for suffix, row in rows.items():
        for column, value in row.items():
            if column != "step":
                figures[f"{column}_{suffix}"] = value
    return figures


def _columns(rows: list[Row], prefix: str) -> dict[str, list[Any]]:
    """The values of each figure over the rows."""
    columns = {}
    for name in rows[0]:
        if name != "step":
            columns[f"{prefix}{name}"] = [row[name] for row in rows]
    return columns


def main() -> None:
    retriever = stage.arguments(__doc__, retriever="one of params.yaml's parts.tuned").retriever

    def work(settings: Settings) -> stage.Metrics:
        return train_retriever(settings, retriever)

    encoder = methods.encoder_folder(Method("lsr", retriever))
    outputs = f"{encoder} and {METRICS}/lsr_{retriever}.json"
    stage.run(f"train_lsr@{retriever}", Settings, work, out=outputs)


if __name__ == "__main__":
    main()
