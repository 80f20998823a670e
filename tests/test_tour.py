"""docs/tour.ipynb works on a release and a run's data, and is kept without outputs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import releases
import tour

from pipelines.replug import ensemble

N, TEMPERATURE, RELEASED = 40, 0.5, 155.0
CLOSED = np.arange(1, N + 1) > 24  # by subject; the popularity is ten times its number
DENSE = (np.arange(1, N + 1) <= 24) | (np.arange(1, N + 1) % 9 == 0)


def write(path: Path, columns: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """Questions about one subject each, a threshold that is too low, and answers with and without retrieval."""
    for person in range(1, N + 1):
        monkeypatch.setitem(releases.PEOPLE, person, f"Person {person}")
    questions = releases.questions([(i, 20 + i % 2) for i in range(1, N + 1)], {i: 10 * i for i in range(1, N + 1)})
    cuts = [row | {"method": "dense", "deployed": RELEASED} for row in releases.thresholds()]
    folder = releases.write_data(tmp_path / "data", questions, cuts=cuts)
    ids = [question["question_id"] for question in questions]
    for name, correct in (("closed_book", CLOSED), ("dense_dense", DENSE)):
        write(folder / f"predictions/popqa/tiny/{name}.parquet", {"question_id": ids, "correct": correct})
    return folder


@pytest.fixture
def scored(data) -> list[float]:
    """The bits per byte of three texts with 0, 1 and 2 documents; two are found for one, and for another none."""
    lengths, found = [4, 2, 3], [["a", "b"], ["a", ""], ["", ""]]
    similarities = np.array([[0.9, 0.4], [0.7, -np.inf], [-np.inf, -np.inf]])
    generator = np.random.default_rng(0)
    log_probs = [{doc: -generator.exponential(size=n) for doc in ("", "a", "b")} for n in lengths]
    rows = [(f"q{i}", doc, list(values)) for i, of_text in enumerate(log_probs) for doc, values in of_text.items()]
    tables = data / "logprobs/pile/tiny"
    columns = dict(zip(("query_id", "doc_id", "log_probs"), map(list, zip(*rows, strict=True)), strict=True))
    columns["bytes"] = [[2] * len(values) for values in columns["log_probs"]]
    write(tables / "logprobs.parquet", columns)
    retrieved = [(f"q{i}", rank + 1, docs[rank]) for i, docs in enumerate(found) for rank in range(2)]
    columns = dict(zip(("query_id", "rank", "doc_id"), map(list, zip(*retrieved, strict=True)), strict=True))
    columns |= {"similarity": similarities.ravel(), "retriever": ["dense"] * 6}
    write(tables / "retrieved.parquet", columns)
    bits, nats = [], []
    for k in range(3):
        mixed = []
        for i, docs in enumerate(found):
            of_documents = np.stack([log_probs[i][doc] for doc in docs[:k] or [""]])[None]
            weights = ensemble.log_weights(similarities[i : i + 1, :k] if k else np.zeros((1, 1)), TEMPERATURE)
            mixed.append(-ensemble.token_mixture(of_documents, weights).sum())
        nats.append(mixed)
        bits.append(sum(mixed) / (math.log(2) * 2 * sum(lengths)))
    columns = {"k": np.repeat([0, 1, 2], 3), "retriever": ["none"] * 3 + ["dense"] * 6, "lm": ["tiny"] * 9}
    columns |= {"nats": np.concatenate(nats), "bytes": [2 * n for n in lengths] * 3}
    write(data / "language_modelling/pile/bpb.parquet", columns)
    return bits


def test_the_tour_finds_the_best_threshold_by_hand_and_the_runs_bits_per_byte(data, scored, tmp_path):
    params = releases.MADE_BY["params"] | {"replug": {"temperature": TEMPERATURE}}
    assert releases.release(data, tmp_path / "place/release", made_by=releases.MADE_BY | {"params": params})
    made = tour.run(tmp_path / "place", data)
    views = 10 * np.arange(1, N + 1)
    best = max(np.where(views < cut, DENSE, CLOSED).mean() for cut in [*views, np.inf])
    by_rule = np.where(views < RELEASED, DENSE, CLOSED).mean()
    assert by_rule < best
    assert made["totals"] == pytest.approx([CLOSED.mean(), DENSE.mean(), best, by_rule])
    assert f"{'250':>9} {'155':>9}" in made["said"], "from the first subject on that memory knows"
    assert made["bits"] == pytest.approx(scored)
    assert [figure for _, figure in made["of_run"]] == pytest.approx(scored)
    assert made["titles"] == [
        "tiny: accuracy by popularity",
        "occupation: 40 questions",
        "tiny on pile: fewer bits are better",
    ]


def test_the_notebook_is_kept_without_outputs_and_with_words_between_its_cells():
    kinds = [cell["cell_type"] for cell in tour.CELLS]
    assert [cell for cell in tour.CELLS if cell.get("outputs") or cell.get("execution_count")] == []
    assert kinds == ["markdown", "code"] * (len(kinds) // 2)
    assert tour.NOTEBOOK.stat().st_size < 20_000
