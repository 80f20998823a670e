"""`longtail ask`: the evaluation's prompt and answer, the command; by any language model there is."""

import io
import json
import shutil
import sys
from pathlib import Path

import completions_server
import pytest
import tiny_models
import yaml
from asked_run import QUESTIONS, questions, write_project, write_tables

from flows import cli
from pipelines.adaptive import ask
from pipelines.adaptive.answer_lines import answer_lines
from pipelines.answering import answer, passages
from pipelines.answering import session as sessions
from pipelines.answering.session import Session
from pipelines.lm import open_lm
from pipelines.lm.local import LocalModel
from pipelines.params import params_file
from pipelines.retrieval import retriever

SHOTS = 3
TITLES = ["Velm", "The Long Field", "Black"]
DOCUMENTS = [
    "Velm is the capital of Norland.",
    "The Long Field was made by Mira Tosh.",
    "Black was directed in Velm.",
]
# The Long Field reaches the threshold, Old Reel does not
POPULAR, RARE = (QUESTIONS[0][4], QUESTIONS[1][4])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """What a run leaves of what `ask` reads, with a random language model and an index."""
    folder = tmp_path_factory.mktemp("project")
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"]["n_shots"] = SHOTS
    values["lms"] = ["tiny", "other"]
    values["lm"]["other"] = values["lm"]["tiny"]
    values["compute"]["threads"] = 1
    documents = []
    for number, (title, text) in enumerate(zip(TITLES, DOCUMENTS, strict=True)):
        documents.append({"id": f"{number}:0", "title": title, "text": text})
    write_project(folder, values, documents)
    write_tables(folder / "data")
    tiny_models.language_model(folder / "data/models/lm/tiny", positions=512)
    return folder


@pytest.fixture
def chosen(project, monkeypatch):
    monkeypatch.chdir(project)
    return params_file.load_settings(ask.Settings)


@pytest.fixture
def asked(project, chosen):
    """`ask.ask` in the project."""

    def asked(question, lm="tiny", pair="bm25", data=project / "data", settings=chosen, **more):
        return ask.ask(question, lm, pair, settings, data=data, **more)

    return asked


@pytest.fixture
def tiny(project):
    folder = project / "data/models/lm/tiny"
    return LocalModel(folder, name="tiny", dtype="fp32", batch_tokens=4096, device="cpu", threads=1)


@pytest.mark.parametrize(
    ("question", "pair", "method", "n_passages", "n_shots"),
    [
        (RARE, "bm25", "bm25", 1, None),
        (RARE, "bm25", "bm25", 2, None),
        (POPULAR, "bm25", "closed_book", 1, None),
        (POPULAR, "bm25", "closed_book", 1, 1),
        (POPULAR, "bm25_below_genread", "genread", 1, None),
        (RARE, "bm25_below_genread", "bm25", 1, None),
    ],
)
def test_the_evaluation_and_ask_answer_alike(
    project, chosen, asked, tiny, question, pair, method, n_passages, n_shots
):
    answering = chosen.answer.model_copy(update={"passages": n_passages})
    models = chosen.lm | {"tiny": chosen.lm["tiny"].model_copy(update={"n_shots": n_shots})}
    settings = chosen.model_copy(update={"answer": answering, "lm": models})
    source = passages.open_source(method, tiny, settings, project / "data")
    in_use = answering.model_copy(update={"n_shots": SHOTS if n_shots is None else n_shots})
    key = f"{pair} {method} {n_passages} {n_shots}"
    setup = answer.Setup("popqa", method, tiny, source, in_use, None, chosen.seed, key)
    rows = {row["question_id"]: row for row in answer.answer(questions(), setup).to_pylist()}
    evaluated = rows["q0" if question == POPULAR else "q1"]
    found = asked(question.lower(), pair=pair, settings=settings)
    assert (found.method, found.decision.retrieve) == (method, question == RARE)
    assert (found.prompt_hash, found.answer) == (evaluated["prompt_hash"], evaluated["prediction"])
    assert found.mean_log_prob == pytest.approx(evaluated["mean_log_prob"], abs=1e-5)
    assert (found.passage is None) == (source is None)
    assert ("passage: " in "\n".join(answer_lines(found))) == (source is not None)
    if method == "bm25":
        assert found.passage.id == evaluated["doc_id"]
        assert sum(document in found.passage.text for document in DOCUMENTS) == n_passages


def test_the_model_reads_the_wording_that_was_evaluated(asked):
    assert asked("who made the long field").question == "Who directed The Long Field?"
    first, again = (asked(" Where  is Velm?") for _ in range(2))
    expected = ("Where is Velm?", None, f"Velm\n{DOCUMENTS[0]}")
    assert (first.question, first.reading, first.passage.text) == expected
    assert first == again


@pytest.mark.parametrize(
    ("question", "note"),
    [
        (
            "How are you?",
            "The question follows no template of this run, so bm25 answers without a threshold.",
        ),
        (
            "Who was the director of Zebedee?",
            "No subject in this run's tables is called 'Zebedee', "
            "so bm25 answers without a threshold.",
        ),
    ],
)
def test_an_odd_question_is_called_what_it_is(longtail, question, note):
    code, said, _ = longtail(question, "--retriever", "bm25")
    assert (code, f"note: {note}" in said.splitlines(), "popularity:" in said) == (0, True, False)
    _, said, _ = longtail(question, "--retriever", "bm25", "--json")
    assert json.loads(said)["decision"] == {"retrieve": True, "threshold": None, "why": note}
    _, said, _ = longtail(question, "--pair", "bm25_below_genread")
    assert f"note: {note}" in said.splitlines()


@pytest.fixture
def longtail(project, monkeypatch, capsys):
    """The command in this process, of words, a pipe's lines or a terminal's; gives exit code,
    output and errors.
    """
    monkeypatch.chdir(project)

    def call(*words, lines=b"", terminal=False):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        monkeypatch.setattr(sys, "argv", ["longtail", "ask", *words])
        for stream in (sys.stdin, sys.stdout):
            monkeypatch.setattr(stream, "isatty", lambda: terminal)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    return call


def test_the_command_says_why(longtail):
    code, said, _ = longtail(
        "who was the director of black", "--retriever", "bm25", "--subject", "Q1"
    )
    lines = said.splitlines()
    assert code == 0
    assert (
        lines[0]
        == "relation: director (P57), by the template 'Who was the director of {}?' of popqa"
    )
    assert lines[1] == "asked: Who was the director of Black?"
    assert lines[2] == "subject: Black (Q1); 3 more of that name (--subject QID)"
    expected = ["Q3", "900", "views", "BLACK", "[Black", "(1999", "film)],", "director", "known"]
    assert lines[3].split() == expected
    assert (
        lines[7]
        == "popularity: 100 views a month; 100 is not below the threshold of its relation, 71"
    )
    assert lines[8] == "rule: bm25 of tiny; closed_book answers"
    assert lines[9].startswith("answer: ")
    _, said, _ = longtail("Where is Velm?", "--retriever", "bm25")
    (passage,) = [line for line in said.splitlines() if line.startswith("passage: Velm (")]
    assert passage.partition("): ")[2] == DOCUMENTS[0], "the title is said once"


def test_json_for_scripts(longtail):
    code, said, _ = longtail(RARE, "--retriever", "bm25", "--json")
    found = json.loads(said)
    assert code == 0
    expected = ("tiny", "bm25", "Q90")
    assert (found["lm"], found["pair"], found["reading"]["subject"]["qid"]) == expected
    assert found["decision"] == {
        "retrieve": True,
        "threshold": 71.0,
        "why": found["decision"]["why"],
    }
    assert found["passage"]["measure"] == "BM25's score"
    assert found["passage"]["text"].removeprefix(found["passage"]["title"] + "\n") in DOCUMENTS


def test_a_pipe_of_questions_opens_the_model_once(longtail, monkeypatch):
    """At a prompt, which comes again until Ctrl-D, too."""
    asked = [POPULAR, "Where is Velm?"]
    single = [longtail(question, "--retriever", "bm25")[1] for question in asked]
    opened = []
    for module, name in ((open_lm, "open_lm"), (retriever, "open_index")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *args, real=real, **kw: opened.append(real.__name__) or real(*args, **kw),
        )
    lines = "\n \n".join(asked).encode() + b"\n"
    code, said, errors = longtail("--retriever", "bm25", lines=lines + b"\xff?")
    assert (code, errors) == (0, "")
    assert said.startswith("".join(single))
    assert said.count("answer: ") == 3, "the last one is no UTF-8"
    assert sorted(opened) == ["open_index", "open_lm"]
    code, said, _ = longtail(
        "--retriever", "bm25", lines=lines.replace(b"\n \n", b"\n"), terminal=True
    )
    assert (code, said) == (0, f"? {single[0]}? {single[1]}? \n")


def test_a_model_made_anew_is_opened_anew(project, asked, tmp_path, monkeypatch):
    lock = tmp_path / "dvc.lock"
    lock.write_text("first")
    monkeypatch.setattr(sessions, "LOCK", lock)
    data = shutil.copytree(project / "data", tmp_path / "data")
    session = Session()
    first, again = (asked("Where is Velm?", data=data, session=session) for _ in range(2))
    shutil.rmtree(data / "models/lm/tiny")
    tiny_models.language_model(data / "models/lm/tiny", positions=512, scale=0.1)
    lock.write_text("second")
    anew = asked("Where is Velm?", data=data, session=session)
    assert first == again != anew == asked("Where is Velm?", data=data)


def test_an_unanswerable_question_does_not_end_a_session(longtail):
    code, said, errors = longtail("--retriever", "dense", lines=b"Why?\nWhy not?\n")
    assert (code, said) == (1, "")
    assert [line.split(";")[0] for line in errors.splitlines()] == [
        "error: data/index/dense/dense/wikipedia: no such index"
    ] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([" "], "the question is empty"),
        (["--subject", "Q1"], "--subject: is that of one question, expected the question beside it"),
        (["Why?", "--subject", "42"], "--subject 42: expected a Wikidata id, a Q and a number, such as Q42"),
        (["Why?", "--pair", "bm25_dense"], "bm25_dense can't answer here, expected a method of"),
        (["Why?", "--pair", "replug_below_genread"], "replug can't answer here, expected"),
        (["Why?", "--lm", "gpt"], "--lm gpt: expected a name of params.yaml's lms: tiny, other"),
        (["Why?", "--lm", "other", "--retriever", "bm25"], "data/models/lm/other: no config.json"),
        (["Why?", "--retriever", "dense"], "data/index/dense/dense/wikipedia: no such index"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said_in_one_line(longtail, words, said):
    code, out, err = longtail(*words)
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_model_on_a_server_answers_as_here(project, chosen, asked, monkeypatch, tmp_path):
    """The server has the same model, under the name of another."""
    data = shutil.copytree(project / "data", tmp_path / "data")
    shutil.copytree(data / "models/lm/tiny", data / "models/lm/other")
    monkeypatch.chdir(tmp_path)  # answers of a server are kept there
    with completions_server.running(data / "models/lm/tiny") as server:
        chosen.lm["other"] = completions_server.settings(server.url, data / "models/lm/tiny")
        local, found = (asked(RARE, lm, data=data) for lm in ("tiny", "other"))
    assert (found.prompt_hash, found.answer) == (local.prompt_hash, local.answer)
