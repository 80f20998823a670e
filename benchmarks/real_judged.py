"""What a run of real models measures in its copy of the project besides the stages, question by
question.

    .venv/bin/python -m benchmarks.real_judged recall

`temperature` chooses replug.temperature on questions for training and writes it to params.yaml.
`recall` says for every held-out question whether one of the first documents of the untuned and of
the tuned retriever holds an answer. A file below judged/ that is there stays as it is.
"""

import argparse
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.project_copy import set_params
from pipelines import draws
from pipelines.answering import prompts
from pipelines.arrays import arrays_of
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.lm.open_lm import lm_at_work, supervising_lm
from pipelines.lsr import training_queries
from pipelines.methods import Method
from pipelines.params import params_file
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.retrieval import documents
from pipelines.retrieval.retriever import open_index
from pipelines.scoring import logprobs
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.storage.work_store import WorkStore, content_key

DATA, OUT = Path("data"), Path("judged")
RETRIEVERS = ("dense", "lsr")  # untuned and tuned
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
TRAINING_QUESTIONS = 200  # at most, that a temperature is chosen on
DEPTH = 5  # documents of a question that are looked at
SHARD = 256  # pairs of a question and a document that are scored at once


def choose_temperature(chosen: SimpleNamespace, file: Path) -> None:
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


def judge_recall(chosen: SimpleNamespace, file: Path) -> None:
    """Write whether the first of a test question's documents, and one of DEPTH, holds an answer
    as whole words.
    """
    table, spoken = read_questions(chosen, "test"), language.read_language(chosen.language)
    columns = {name: table[name] for name in ("question_id", "subject")}
    for retriever in RETRIEVERS:
        found = documents.read_documents(
            docs_of(chosen), search(chosen, retriever, table, DEPTH)[0]
        )
        rows = zip(
            table["possible_answers"].to_pylist(), found.filled(chosen.answer.passage), strict=True
        )
        holds = np.array(
            [[matching.word(text, answers, spoken) for text in texts] for answers, texts in rows]
        )
        columns |= {f"{retriever}_at_1": holds[:, 0], f"{retriever}_at_{DEPTH}": holds.any(axis=1)}
    with atomic(file) as temporary:
        parquet.write_parquet(pa.table(columns), temporary)


def read_questions(chosen: SimpleNamespace, split: str | None = None) -> pa.Table:
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


def docs_of(chosen: SimpleNamespace) -> Path:
    return DATA / f"corpus/{chosen.parts.datastore}/docs.parquet"


def search(
    chosen: SimpleNamespace, retriever: str, table: pa.Table, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and similarities (questions, k) of the documents that a retriever finds."""
    index = Method.parse(retriever, chosen.retrievers)
    opened = open_index(index, chosen.parts.datastore, chosen, data=DATA)
    return opened.search(table["question"].to_pylist(), k)


def score_answers(
    chosen: SimpleNamespace, table: pa.Table, rows: np.ndarray, positions: np.ndarray
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
