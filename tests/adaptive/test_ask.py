"""`longtail ask`: the evaluation's prompt and answer, the attribution, the command; by any language model there is."""

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import completions_server
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml
from asked_run import CUTS, QUESTIONS, questions, rule, write_tables

from flows import cli
from pipelines import params_file
from pipelines.adaptive import ask
from pipelines.adaptive.opened import Opened
from pipelines.answering import answer, passages, prompts
from pipelines.errors import LongtailError
from pipelines.lm import open_lm
from pipelines.lm.language_model import Scores
from pipelines.lm.local import LocalModel
from pipelines.retrieval import bm25_build, retriever

SHOTS = 3
DOCUMENTS = ["Velm is the capital of Norland.", "The Long Field was made by Mira Tosh.", "Black was directed in Velm."]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """What a run leaves of what `ask` reads, with a random language model and an index."""
    folder = tmp_path_factory.mktemp("project")
    data = folder / "data"
    write_tables(data)
    (folder / "conf").mkdir()
    for name in ("dvc.yaml", "conf/config.yaml"):
        (folder / name).touch()
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"]["n_shots"], values["lms"], values["compute"]["threads"] = SHOTS, ["tiny", "other"], 1
    values["lm"]["other"] = values["lm"]["tiny"]
    (folder / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    tiny_models.language_model(data / "models/lm/tiny", positions=512)
    docs = data / "corpus/wikipedia/docs.parquet"
    docs.parent.mkdir(parents=True)
    ids = [f"{i}:0" for i in range(len(DOCUMENTS))]
    pq.write_table(pa.table({"id": ids, "title": ["Velm", "The Long Field", "Black"], "text": DOCUMENTS}), docs)
    index = data / "index/bm25/wikipedia"
    bm25_build.build(docs, index, params_file.parse(values).index, tiny_models.compute(), "test")
    return folder


@pytest.fixture
def chosen(project, monkeypatch):
    monkeypatch.chdir(project)
    sections = ("seed", "language", "lm", "lms", "compute", "retriever", "retrievers", "reranker", "answer", "parts")
    return params_file.load(*sections)


@pytest.mark.parametrize(
    ("method", "n_passages", "n_shots"),
    [("bm25", 1, None), ("bm25", 2, None), ("closed_book", 1, None), ("closed_book", 1, 1)],
)
def test_what_the_evaluation_asks_too_is_asked_with_the_same_prompt_and_answered_alike(
    project, chosen, method, n_passages, n_shots
):
    data = project / "data"
    lm = LocalModel(data / "models/lm/tiny", name="tiny", dtype="fp32", batch_tokens=4096, device="cpu", threads=1)
    chosen.answer = chosen.answer.model_copy(update={"passages": n_passages})
    source = passages.open_source(method, lm, chosen, data)
    key = f"{method} {n_passages} {n_shots}"
    chosen.lm = chosen.lm | {"tiny": chosen.lm["tiny"].model_copy(update={"n_shots": n_shots})}
    in_use = chosen.answer.model_copy(update={"n_shots": SHOTS if n_shots is None else n_shots})
    setup = answer.Setup("popqa", method, lm, source, in_use, None, chosen.seed, key)
    table = answer.answer(questions(), setup)[0].to_pylist()
    evaluated = next(row for row in table if row["question_id"] == ("q1" if source else "q0"))
    found = ask.ask(QUESTIONS[1 if source else 0][4].lower(), "tiny", "bm25", chosen, data=data)
    assert (found.passage is not None) == (source is not None)
    assert (found.prompt_hash, found.answer) == (evaluated["prompt_hash"], evaluated["prediction"])
    assert found.mean_log_prob == pytest.approx(evaluated["mean_log_prob"], abs=1e-5)
    assert not found.passage or sum(document in found.passage.text for document in DOCUMENTS) == n_passages


@pytest.mark.parametrize(("question", "method"), [(QUESTIONS[0], "genread"), (QUESTIONS[1], "bm25")])
def test_of_two_answers_the_one_on_the_subjects_side_is_given_as_the_evaluation_gives_it(
    project, chosen, question, method
):
    """The Long Field reaches the threshold, Old Reel does not."""
    data = project / "data"
    lm = LocalModel(data / "models/lm/tiny", name="tiny", dtype="fp32", batch_tokens=4096, device="cpu", threads=1)
    source = passages.open_source(method, lm, chosen, data)
    setup = answer.Setup("popqa", method, lm, source, chosen.answer, None, chosen.seed, f"pair {method}")
    rows = {row["question_id"]: row for row in answer.answer(questions(), setup)[0].to_pylist()}
    evaluated = rows[f"q{QUESTIONS.index(question)}"]
    found = ask.ask(question[4], "tiny", "bm25_below_genread", chosen, data=data)
    assert (found.method, found.decision.retrieve) == (method, method == "bm25")
    assert found.decision.why.endswith(f": {method} of tiny")
    assert (found.prompt_hash, found.answer) == (evaluated["prompt_hash"], evaluated["prediction"])
    assert found.passage.id == evaluated["doc_id"]
    assert "passage: " in "\n".join(ask.lines(found))


@pytest.mark.parametrize(
    ("question", "lm", "method"), [(QUESTIONS[0], "tiny", "bm25"), (QUESTIONS[1], "other", "closed_book")]
)
def test_of_two_models_only_the_one_that_answers_is_opened(project, chosen, monkeypatch, question, lm, method):
    opened = []

    def open_lm(folder, *settings):
        opened.append(folder.name)
        return LocalModel(
            project / "data/models/lm/tiny", name=folder.name, dtype="fp32", batch_tokens=4096, device="cpu", threads=1
        )

    monkeypatch.setattr("pipelines.lm.open_lm.open_lm", open_lm)
    chosen.lm = chosen.lm | {"other": chosen.lm["tiny"].model_copy(update={"n_shots": 1})}
    found = ask.ask(question[4], "tiny", "other/closed_book_below_bm25", chosen, data=project / "data")
    assert (opened, found.lm, found.method) == ([lm], lm, method)
    assert (found.passage is not None) == (method == "bm25")


@pytest.mark.parametrize(
    ("pair", "said"),
    [("huge/dense_below_closed_book", "--lm huge: expected a name"), ("replug_below_genread", "not replug")],
)
def test_answers_that_ask_cannot_give_are_an_error(project, chosen, pair, said):
    with pytest.raises(LongtailError, match=said):
        ask.ask("Why?", "tiny", pair, chosen, data=project / "data")


def test_the_model_reads_the_wording_that_was_evaluated(project, chosen):
    found = ask.ask("who made the long field", "tiny", "bm25", chosen, data=project / "data")
    assert found.question == "Who directed The Long Field?"


def test_a_question_of_no_template_gets_a_passage_and_the_same_answer_every_time(project, chosen):
    first, again = (ask.ask(" Where  is Velm?", "tiny", "bm25", chosen, data=project / "data") for _ in range(2))
    assert (first.question, first.reading, first.passage.text) == ("Where is Velm?", None, f"Velm\n{DOCUMENTS[0]}")
    assert first == again


class KnownLM:
    """Says how probable the tokens of a text are after each prompt."""

    def __init__(self, **probabilities):
        self.probabilities = probabilities

    def score(self, asked, texts):
        own = [self.probabilities[one.context] for one in asked]
        return Scores([np.log(one) for one in own], [np.array([2, 3] if len(one) == 2 else [5]) for one in own])


def test_the_answer_is_shared_out_to_memory_and_passage():
    lm = KnownLM(alone=[0.2, 0.5], read=[0.8, 0.25])
    found = ask.attribute(lm, prompts.Prompt("alone"), prompts.Prompt("read"), " Velm")
    assert [one.text for one in found.tokens] == [" V", "elm"]
    assert [one.memory for one in found.tokens] == pytest.approx([0.25, 1.0])  # min(1, p_0 / p)
    assert [one.passage for one in found.tokens] == pytest.approx([0.75, 0.0])
    assert [one.posterior for one in found.tokens] == pytest.approx([0.8, 1 / 3])
    assert [one.augmented for one in found.tokens] == pytest.approx([0.8, 0.25])
    assert (found.memory, found.passage) == pytest.approx((0.625, 0.375))
    assert found.posterior == pytest.approx(0.2 / (0.2 + 0.1))
    assert np.exp(found.log_prob_closed_book) == pytest.approx(0.1)


def test_an_answer_that_a_server_cuts_in_two_ways_is_one_token():
    lm = KnownLM(alone=[0.1], read=[0.8, 0.25])
    found = ask.attribute(lm, prompts.Prompt("alone"), prompts.Prompt("read"), " Velm")
    assert [(one.text, round(one.memory, 6)) for one in found.tokens] == [(" Velm", 0.5)]


@pytest.fixture
def longtail(project, monkeypatch, capsys):
    monkeypatch.chdir(project)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["longtail", "ask", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    return call


def test_the_command_says_why(longtail):
    code, said, _ = longtail("who was the director of black", "--retriever", "bm25", "--subject", "Q1")
    lines = said.splitlines()
    assert code == 0
    assert lines[0] == "relation: director (P57), by the template 'Who was the director of {}?' of popqa"
    assert lines[1] == "asked: Who was the director of Black?"
    assert lines[2] == "subject: Black (Q1); 3 more of that name (--subject QID)"
    assert lines[3].split() == ["Q3", "900", "views", "BLACK", "[Black", "(1999", "film)],", "director", "known"]
    assert lines[7].startswith("popularity: 100 views a month reach the threshold of 71: no retrieval")
    assert lines[8] == "attribution: memory alone, nothing was read"
    assert lines[-1].startswith("answer: ")


def test_json_for_scripts(longtail):
    code, said, _ = longtail("Who was the director of Old Reel?", "--retriever", "bm25", "--json")
    found = json.loads(said)
    assert code == 0
    assert (found["lm"], found["retriever"], found["reading"]["subject"]["qid"]) == ("tiny", "bm25", "Q90")
    assert found["decision"] == {"retrieve": True, "threshold": 71.0, "why": found["decision"]["why"]}
    assert found["passage"]["text"].removeprefix(found["passage"]["title"] + "\n") in DOCUMENTS
    tokens = found["attribution"]["tokens"]
    assert "".join(token["text"] for token in tokens).strip() == found["answer"]
    assert all(token["memory"] + token["passage"] == pytest.approx(1) for token in tokens)


def test_the_command_answers_by_a_pair(longtail):
    for question, method in ((QUESTIONS[0], "genread"), (QUESTIONS[1], "bm25")):
        code, said, _ = longtail(question[4], "--pair", "bm25_below_genread", "--retriever", "dense", "--json")
        found = json.loads(said)
        assert (code, found["method"], found["retriever"]) == (0, method, "bm25_below_genread")


def test_questions_of_a_pipe_are_answered_as_single_ones_by_a_model_that_is_opened_once(longtail, monkeypatch):
    asked = [QUESTIONS[0][4], "Where is Velm?", QUESTIONS[1][4]]
    single = [longtail(question, "--retriever", "bm25")[1] for question in asked]
    opened = []
    for module, name in ((open_lm, "open_lm"), (retriever, "open_index")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *of, real=real: opened.append(real.__name__) or real(*of))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n \n".join(asked).encode() + b"\n\xff?")))
    code, said, errors = longtail("--retriever", "bm25")
    assert (code, errors) == (0, "")
    assert said.startswith("".join(single))
    assert said.count("answer: ") == 4, "the last one is no UTF-8"
    assert sorted(opened) == ["open_index", "open_lm"]


def test_an_index_or_a_model_made_anew_between_two_questions_is_opened_anew(project, chosen):
    session, data = Opened(), project / "data"
    first, again = (ask.ask("Where is Velm?", "tiny", "bm25", chosen, data=data, opened=session) for _ in range(2))
    weights = data / "models/lm/tiny"
    kept = weights.rename(project / "kept")
    tiny_models.language_model(weights, positions=512, scale=0.1)
    try:
        other = ask.ask("Where is Velm?", "tiny", "bm25", chosen, data=data, opened=session)
        assert first == again != other == ask.ask("Where is Velm?", "tiny", "bm25", chosen, data=data)
    finally:
        shutil.rmtree(weights)
        kept.rename(weights)


def test_a_question_that_can_not_be_answered_does_not_end_a_session_of_others(longtail, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Why?\nWhy not?\n")))
    code, said, errors = longtail("--retriever", "dense")
    assert (code, said) == (1, "")
    assert [line.split(";")[0] for line in errors.splitlines()] == [
        "error: data/index/dense/dense/wikipedia: no such index"
    ] * 2


def test_a_person_asks_at_a_prompt_until_ctrl_d(project, root):
    """On a terminal: a prompt comes, an answer to each line, and the prompt again."""
    terminal, other = pty.openpty()
    command = [sys.executable, "-m", "flows.cli", "ask", "--retriever", "bm25"]
    environment = os.environ | {"PYTHONPATH": str(root), "TERM": "dumb"}
    child = subprocess.Popen(command, cwd=project, env=environment, stdin=other, stdout=other, stderr=other)
    os.close(other)
    shown = ""

    def until(text: str, count: int) -> None:
        nonlocal shown
        while shown.count(text) < count:
            shown += os.read(terminal, 4096).decode()

    try:
        for number, question in enumerate(("Where is Velm?", QUESTIONS[0][4]), 1):
            until("? ", number)  # a question itself ends in a mark without a space
            os.write(terminal, f"{question}\n".encode())
            until("answer: ", number)
        until("? ", number + 1)
        os.write(terminal, b"\x04")
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        child.wait()
        os.close(terminal)
    assert "asked: Who was the director" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([" "], "the question is empty"),
        (["--subject", "Q1"], "--subject: is that of one question, expected the question beside it"),
        (["Why?", "--lm", "gpt"], "--lm gpt: expected a name of params.yaml's lms: tiny, other"),
        (["Why?", "--lm", "gpt-4.1"], "; or imported: gpt-4.1 by closed_book, web-search"),
        (["Why?", "--lm", "gpt-4.1", "--retriever", "bm25"], "--lm gpt-4.1: expected a name"),
        (["Why?", "--lm", "other", "--retriever", "bm25"], "data/models/lm/other: no config.json"),
        (["Why?", "--retriever", "dense"], "data/index/dense/dense/wikipedia: no such index"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(longtail, words, said, request):
    if "gpt-4.1" in words:
        request.getfixturevalue("imported")
    if words[1:] == ["--lm", "gpt-4.1"]:
        words = [*words, "--retriever", "none"]
    code, out, err = longtail(*words)
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.fixture
def imported(project):
    """Answers of a model that can't be asked, and the thresholds tuned for it: on the same subjects, ten times ours."""
    folder = project / "data/imported/popqa/gpt-4.1"
    folder.mkdir(parents=True)
    schema = answer.SCHEMA
    for name in ("closed_book", "web-search"):
        rows = [{"question_id": "q0", "method": name, "correct": True}]
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet")
    file = project / "data/adaptive/popularity/thresholds.json"
    before = file.read_text()
    tuned = json.loads(before)
    in_use = rule(thresholds=CUTS | {"P57": 710.0}, together=60.0)
    tuned["rules"]["popqa"]["gpt-4.1"] = {"web-search": in_use}
    file.write_text(json.dumps(tuned))
    yield
    file.write_text(before)
    shutil.rmtree(project / "data/imported")


@pytest.mark.parametrize("named", [[], ["--retriever", "web-search"]])
def test_an_imported_models_thresholds_decide_for_a_model_that_cannot_be_asked_here(longtail, imported, named):
    code, out, _ = longtail("Who was the director of The Long Field?", "--lm", "gpt-4.1", *named)
    assert code == 0
    assert "are below the threshold of 710" in out
    assert out.endswith("decision: web-search of gpt-4.1, which answers elsewhere: its answers were imported\n")
    code, out, _ = longtail("Who was the director of Black?", "--subject", "Q3", "--lm", "gpt-4.1", "--json", *named)
    asked = json.loads(out)
    assert (asked["method"], asked["decision"]["threshold"], asked["answer"]) == ("closed_book", 710.0, "")


@pytest.fixture
def served(project, chosen, monkeypatch, tmp_path):
    """The same model behind a server, as `other`."""
    folder, tokenizer = project / "data/models/lm/other", project / "data/models/lm/tiny"
    folder.symlink_to(tokenizer)
    monkeypatch.chdir(tmp_path)  # its answers are kept there
    with completions_server.running(tokenizer) as server:
        chosen.lm["other"] = completions_server.settings(server.url, tokenizer)
        yield server
    folder.unlink()


@pytest.mark.parametrize("scores", [True, False])
def test_a_model_on_a_server_answers_and_is_attributed_if_it_scores(project, chosen, served, scores):
    served.echo = scores
    local, found = (ask.ask(QUESTIONS[1][4], lm, "bm25", chosen, data=project / "data") for lm in ("tiny", "other"))
    assert (found.prompt_hash, found.answer) == (local.prompt_hash, local.answer)
    if scores:
        assert found.attribution.memory == pytest.approx(local.attribution.memory, abs=1e-3)
    else:
        assert found.attribution is None
        assert any("a server that does not score" in line for line in ask.lines(found))
