"""What a run of real models measures in its copy of the project besides the stages, question by
question.

    .venv/bin/python -m benchmarks.real_judged recall

`temperature` chooses replug.temperature on questions for training and writes it to params.yaml.
`recall` says for every held-out question whether one of the first documents of the untuned and of
the tuned retriever holds an answer; questions of relations that the run left out are held out, too.
`accuracy` says of some of them whether three language models are right with the first document. A
file below judged/ that is there stays as it is.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.project_copy import set_params
from benchmarks.real_models import FEW_QUESTIONS, SHOTS_OF
from pipelines import draws
from pipelines.answering import prompts
from pipelines.arrays import arrays_of
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.lm.open_lm import lm_at_work, supervising_lm
from pipelines.lsr import training_queries
from pipelines.lsr.scores import RightAnswers
from pipelines.methods import Method
from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.questions import matching, published
from pipelines.replug import ensemble
from pipelines.retrieval import documents
from pipelines.retrieval.retriever import open_index
from pipelines.scoring import logprobs
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.storage.work_store import WorkStore, content_key

DATA, OUT = Path("data"), Path("judged")
RETRIEVERS = ("dense", "lsr")  # untuned and tuned
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
TRAINING_QUESTIONS = 200  # at most, that a temperature is chosen on
DEPTHS = (1, 5, 10)  # documents of a question that are looked at
JUDGES_OF_LSR = ("smollm2-135m", "gemma3-270m", "qwen2_5-coder-0_5b")
ANSWERED = 100  # questions of each copy that they answer
ANSWERS = Path("../answers")  # which all copies of a run share
SHARD = 256  # pairs of a question and a document that are scored at once


def choose_temperature(chosen: Params, file: Path) -> None:
    """Take the temperature under which REPLUG's ensemble makes the gold answers of training
    questions likeliest.

    The language model is the one that LSR learns from. `file` gets the bits per byte under each
    temperature.
    """
    table = read_questions(chosen, "train")
    drawn = draws.sample(
        chosen.seed, "temperature", table["question_id"].to_pylist(), TRAINING_QUESTIONS
    )
    positions, similarities = search(chosen, "dense", table.take(drawn), chosen.replug.top_k)
    log_probs, n_bytes = score_answers(chosen, table, drawn, positions)
    rows = []
    for temperature in TEMPERATURES:
        weights = ensemble.log_weights(similarities, temperature)
        nats = -ensemble.MIXTURES[chosen.replug.mixture](log_probs, weights).sum()
        bits = float(bits_per_byte(nats, n_bytes.sum()))
        rows.append({"temperature": temperature, "bits_per_byte": bits})
    best = min(rows, key=lambda row: row["bits_per_byte"])["temperature"]
    set_params(Path(), replug={"temperature": best})
    write_json(file, {"questions": len(drawn), "chosen": best, "temperatures": rows})


def judge_recall(chosen: Params, file: Path) -> None:
    """Write whether one of the first documents (DEPTHS) of a held-out question holds an answer as
    whole words, and which document is the first.
    """
    table = read_held_out(chosen)
    spoken = language.read_language(chosen.language)
    columns = {name: table[name] for name in ("question_id", "subject", "unseen")}
    for retriever in RETRIEVERS:
        positions, _ = search(chosen, retriever, table, max(DEPTHS))
        found = documents.read_documents(docs_of(chosen), positions)
        holds = np.zeros(positions.shape, bool)
        texts_of_rows = found.filled(chosen.answer.passage)
        for row, answers in enumerate(table["possible_answers"].to_pylist()):
            holds[row] = [matching.word(text, answers, spoken) for text in texts_of_rows[row]]
        columns[f"{retriever}_first"] = positions[:, 0]
        for depth in DEPTHS:
            columns[f"{retriever}_at_{depth}"] = holds[:, :depth].any(axis=1)
    with atomic(file) as temporary:
        parquet.write_parquet(pa.table(columns), temporary)


def judge_accuracy(chosen: Params, file: Path) -> None:
    """Write for some held-out questions whether each language model is right with the first
    document of the untuned and of the tuned retriever, as whole words.

    No copy of a run asks a language model what another has asked it.
    """
    recall = parquet.read_parquet(OUT / "recall.parquet")
    held_out = read_held_out(chosen)
    pool = prompts.read_questions(held_out)
    drawn = draws.sample(chosen.seed, "accuracy", pool.ids, ANSWERED)
    columns = {name: recall[name].take(drawn) for name in ("question_id", "subject", "unseen")}
    first = np.stack([recall[f"{name}_first"].to_numpy()[drawn] for name in RETRIEVERS], axis=1)
    for lm in JUDGES_OF_LSR:
        right = _right_answers(chosen, lm, pool, drawn, first)
        for number, retriever in enumerate(RETRIEVERS):
            columns[f"{retriever}_right_{lm}"] = right[:, number] == 1
    with atomic(file) as temporary:
        parquet.write_parquet(pa.table(columns), temporary)


def _right_answers(
    chosen: Params, lm: str, pool: prompts.Questions, rows: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """1 where a language model answers a question of `rows` (n,) rightly with a document of its
    `positions` (n, k), else 0: (n, k). A teacher is asked as it teaches, another model without
    demonstrations.
    """
    n_shots = SHOTS_OF.get(lm, 0)
    lsr = chosen.lsr.model_copy(update={"lm": lm, "n_shots": n_shots})
    settings = chosen.model_copy(update={"lsr": lsr})
    dataset = chosen.parts.answered[0]
    answers = np.empty(len(rows), object)
    answers[:] = [pool.answers[row] for row in rows]
    corpus = training_queries.CorpusQueries(
        name=lm,
        corpus=chosen.parts.datastore,
        queries=training_queries.question_queries(dataset, pool, rows, settings, "dense"),
        train=len(rows),
        clusters=rows,
        answers=answers,
    )
    numbers = np.arange(len(rows))
    folder = Path(chosen.lm[lm].path)
    with lm_at_work(folder, chosen.lm[lm], chosen.compute) as model:
        scores = RightAnswers(settings, ANSWERS / f"{lm}_{n_shots}_{chosen.seed}", model, corpus)
        scores.score(logprobs.unique_pairs(numbers, positions))
    right, _ = scores.look_up(numbers, positions)
    return right


def read_held_out(chosen: Params) -> pa.Table:
    """The test questions, and those of FEW_QUESTIONS whose relation the run has no question of
    (`unseen`), in the order of ids.
    """
    table = read_questions(chosen)
    file = Path(chosen.fetch.root) / FEW_QUESTIONS
    everything = published.read_published(file, Rejects(1.0))
    everything = everything.append_column("question_id", everything["id"].cast(pa.string()))
    everything = everything.append_column("relation", everything["prop"])
    everything = everything.append_column("subject", everything["s_uri"])

    asked = everything.filter(pc.is_in(everything["question_id"], table["question_id"]))
    is_known = pc.is_in(everything["relation"], asked["relation"])
    unseen = everything.filter(pc.invert(is_known))

    seen = table.filter(pc.equal(table["split"], "test"))
    parts = []
    for part, is_unseen in ((seen, False), (unseen, True)):
        parts.append(part.append_column("unseen", pa.array([is_unseen] * len(part), pa.bool_())))
    return pa.concat_tables(parts, promote_options="default").sort_by("question_id")


def read_questions(chosen: Params, split: str | None = None) -> pa.Table:
    """The first answered question set, or one split of it, in the order of ids; `subject` says
    what it asks about.
    """
    name = chosen.parts.answered[0]
    table = parquet.read_parquet(DATA / f"questions/{name}/{name}.parquet").sort_by("question_id")
    table = table.append_column("subject", pc.coalesce(table["s_uri"], table["subj"]))
    table = table.filter(pc.equal(table["split"], split)) if split else table
    if not table.num_rows:
        raise LongtailError(
            f"params.yaml: popqa.train_share leaves no question to {split} with; change it"
        )
    return table


def docs_of(chosen: Params) -> Path:
    return DATA / f"corpus/{chosen.parts.datastore}/docs.parquet"


def search(
    chosen: Params, retriever: str, table: pa.Table, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and similarities (questions, k) of the documents that a retriever finds."""
    index = Method.parse(retriever, chosen.retrievers)
    opened = open_index(index, chosen.parts.datastore, chosen, data=DATA)
    return opened.search(table["question"].to_pylist(), k)


def score_answers(
    chosen: Params, table: pa.Table, rows: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log p (n, k, tokens) of the first gold answers to the questions `rows` (n,), each with k
    documents; bytes (n, t).

    Demonstrations are of `table`. A killed call goes on after the last whole shard.
    """
    pool = prompts.read_questions(table)
    queries = training_queries.question_queries(
        chosen.parts.answered[0], pool, rows, settings=chosen, retriever=chosen.retrievers[0]
    )
    numbers, docs = np.arange(len(rows)), docs_of(chosen)
    pairs = logprobs.unique_pairs(numbers, positions)
    parts = np.split(pairs, range(SHARD, len(pairs), SHARD))
    folder, lm = supervising_lm(chosen)
    asked = [column.tolist() for column in arrays_of(queries).values()]
    compute = chosen.compute
    depends_on = (lm, compute.device, compute.threads, asked, pairs.tobytes())
    key = content_key(depends_on, "", folder, docs)
    with lm_at_work(folder, lm, chosen.compute, scoring=True) as model:
        files = logprobs.score_parts("judged", key, model, queries, docs, parts)
    scored = pa.concat_tables([parquet.read_parquet(file) for file in files])
    WorkStore().forget("judged", key)
    return logprobs.gather(scored, numbers, positions)


JUDGES = {
    "temperature": (choose_temperature, OUT / "temperature.json"),
    "recall": (judge_recall, OUT / "recall.parquet"),
    "accuracy": (judge_accuracy, OUT / "accuracy.parquet"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=JUDGES)
    judge, file = JUDGES[parser.parse_args().what]
    if not file.is_file():
        OUT.mkdir(exist_ok=True)
        judge(params_file.load_params(), file)


if __name__ == "__main__":
    main()
