"""Questions to answer, and the stage that answers them."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from echoing import EchoingLM, source

from pipelines.answering import answer, passages
from pipelines.lm import open_lm
from pipelines.methods import METHODS


@pytest.fixture
def questions() -> pa.Table:
    n = 60
    return pa.table(
        {
            "question_id": [f"q{i:02d}" for i in range(n)],
            "relation": [f"P{i % 5}" for i in range(n)],
            "subj": [f"S{i}" for i in range(n)],
            "s_wiki_title": [f"S{i}" for i in range(n)],
            "question": [f"What is {i} ?" for i in range(n)],
            "possible_answers": [[f"gold{i}"] for i in range(n)],
            "split": ["train" if i % 3 == 0 else "test" for i in range(n)],
        }
    )


@pytest.fixture
def stage(questions, monkeypatch, root):
    """The stage with an echoing model, which it returns; `of_lm` are the demonstrations that
    the params say of each.
    """
    finds = {name: source(name, None) for name in METHODS}
    monkeypatch.setattr(passages, "open_source", lambda way, *_: finds[way])
    monkeypatch.setattr(passages, "inputs", lambda *_: [])
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))

    def stage(name, ways, of_lm, *, mixes=True, lm=None, batch_tokens=None, **changes):
        values["answer"]["n_shots"], values["lms"], values["ways"] = 2, [*of_lm], ways
        values["thresholds"]["pairs"] = []
        values.update(changes)
        tiny = values["lm"]["tiny"] | {"batch_tokens": batch_tokens}
        values["lm"] = {lm: tiny | {"n_shots": n} for lm, n in of_lm.items()}
        Path("params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        lm = lm or EchoingLM()
        lm.name, lm.usage, lm.mixes = name, {}, mixes
        monkeypatch.setattr(open_lm, "lm_at_work", lambda *_, **__: contextlib.nullcontext(lm))
        monkeypatch.setattr("sys.argv", ["answer", "popqa", name])
        with contextlib.suppress(SystemExit):
            answer.main()
        return lm

    return stage
