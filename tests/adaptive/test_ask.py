"""`longtail ask`: relation and subject, the decision, the evaluation's prompt, the attribution; by any LM there is."""

import csv
import json
import shutil
import sys
from pathlib import Path

import completions_server
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml

from flows import cli
from pipelines import params_file
from pipelines.adaptive import ask, subjects
from pipelines.answering import answer, passages, prompts
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Scores
from pipelines.lm.local import LocalModel
from pipelines.retrieval import bm25_build

SHOTS = 3
ENTITIES = [  # qid, label, aliases, wiki_title, popularity
    ("Q1", "Black", ["The Black Film"], "Black (2005 film)", 100),
    ("Q2", "Black", [], "Black", 50_000),
    ("Q3", "BLACK", [], "Black (1999 film)", 900),
    ("Q4", "The Long Field", [], "The Long Field", 70),
    ("Q5", "Who's There?", [], "Who's There?", 69),
    ("Q6", "Norland", ["Land of Black"], "Norland", None),
    ("Q7", "Mira Tosh", ["Black"], "Mira Tosh", 800_000),
]
CLAIMS = [(1, 57, 7), (3, 57, 7), (4, 57, 7), (5, 57, 7), (6, 57, 7), (4, 50, 7), (6, 36, 7), (7, 57, 7)]
QUESTIONS = [  # relation, subject, its number, popularity, question, answer
    ("P57", "The Long Field", 4, 71, "Who was the director of The Long Field?", "Mira Tosh"),
    ("P57", "Old Reel", 90, 12, "Who was the director of Old Reel?", "Mira Tosh"),
    ("P57", "Tosh\u2019s  Reel", 91, 12, "Who was the director of Tosh\u2019s  Reel?", "Mira Tosh"),
    ("P50", "The Long Field", 4, 71, "Who is the author of The Long Field?", "Mira Tosh"),
    ("P36", "Norland", 6, None, "What is the capital of Norland?", "Velm"),
    ("P19", "Mira Tosh", 7, 700_000, "In what city was Mira Tosh born?", "Velm"),
    ("P106", "Mira Tosh", 7, 700_000, "What is Mira Tosh's occupation?", "author"),
]
CUTS = {"P57": 71.0, "P36": None, "P106": 0.0}
TEMPLATES = {"P57": "Who directed [X]?", "P36": "What is the capital of [X]?", "P57_similar": "Who made [X]?"}
DOCUMENTS = ["Velm is the capital of Norland.", "The Long Field was made by Mira Tosh.", "Black was directed in Velm."]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """What a run leaves of what `ask` reads, with a random language model."""
    folder = tmp_path_factory.mktemp("project")
    data = folder / "data"
    for name in (
        "conf",
        "data/knowledge/triples",
        "data/knowledge/wikidata",
        "data/questions/popqa",
        "data/questions/entityquestions",
        "data/adaptive/popularity",
    ):
        (folder / name).mkdir(parents=True)
    for name in ("dvc.yaml", "conf/config.yaml"):
        (folder / name).touch()
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"]["n_shots"], values["lms"], values["compute"]["threads"] = SHOTS, ["tiny", "other"], 1
    values["lm"]["other"] = values["lm"]["tiny"]
    (folder / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    tiny_models.language_model(data / "models/lm/tiny", positions=512)
    names = ("qid", "label", "aliases", "wiki_title", "popularity")
    pq.write_table(
        pa.table(dict(zip(names, zip(*ENTITIES, strict=True), strict=True))),
        data / "knowledge/triples/entities.parquet",
    )
    pq.write_table(
        pa.table(dict(zip("spo", zip(*CLAIMS, strict=True), strict=True))), data / "knowledge/wikidata/claims.parquet"
    )
    pq.write_table(questions(), data / "questions/popqa/popqa.parquet")
    pq.write_table(questions().slice(0, 0), data / "questions/entityquestions/entityquestions.parquet")
    (data / "raw/entityquestions").mkdir(parents=True)
    (data / "raw/entityquestions/relation_query_templates.json").write_text(json.dumps(TEMPLATES))
    docs = data / "corpus/wikipedia/docs.parquet"
    docs.parent.mkdir(parents=True)
    ids = [f"{i}:0" for i in range(len(DOCUMENTS))]
    pq.write_table(pa.table({"id": ids, "title": ["Velm", "The Long Field", "Black"], "text": DOCUMENTS}), docs)
    index = data / "index/bm25/wikipedia"
    bm25_build.build(docs, index, params_file.parse(values).index, tiny_models.compute(), "test")
    tuned = {"search": "exact", "thresholds": {"popqa": {"tiny": {"bm25": CUTS, "bm25_below_genread": CUTS}}}}
    tuned["thresholds"]["popqa"]["tiny"]["other/closed_book_below_bm25"] = CUTS
    (data / "adaptive/popularity/thresholds.json").write_text(json.dumps(tuned))
    return folder


def questions() -> pa.Table:
    rows = [
        {"question_id": f"q{i}", "relation": relation, "subj": subject, "s_uri": f"{subjects.ENTITY}Q{number}"}
        | {"s_pop": popularity, "s_aliases": [], "s_wiki_title": subject, "question": question, "split": "test"}
        | {"possible_answers": [f"the {right}", right], "obj": right}
        for i, (relation, subject, number, popularity, question, right) in enumerate(QUESTIONS)
    ]
    columns = {"s_pop": pa.int64(), "s_aliases": pa.list_(pa.string()), "possible_answers": pa.list_(pa.string())}
    return pa.table({k: pa.array([r[k] for r in rows], columns.get(k, pa.string())) for k in rows[0]})


@pytest.fixture
def chosen(project, monkeypatch):
    monkeypatch.chdir(project)
    return params_file.load("seed", "lm", "lms", "compute", "retriever", "retrievers", "reranker", "answer", "parts")


def read(project: Path, question: str, qid: str | None = None) -> subjects.Reading:
    return subjects.read(question, project / "data", qid)


@pytest.mark.parametrize(
    ("question", "relation", "qid", "name"),
    [
        ("Who was the director of The Long Field?", "P57", "Q4", "The Long Field"),
        ("  who WAS the  director of the long field", "P57", "Q4", "The Long Field"),
        ("Who is the author of The Long Field ?", "P50", "Q4", "The Long Field"),
        ("Who was the director of the black film?", "P57", "Q1", "The Black Film"),  # an alias
        ("Who was the director of Who\u2019s There?", "P57", "Q5", "Who's There?"),  # the mark is the name's
        ("Who was the director of Who's There??", "P57", "Q5", "Who's There?"),
        ("who directed The Long Field", "P57", "Q4", "The Long Field"),  # EntityQuestions' wording
        ("What is the capital of Norland?", "P36", "Q6", "Norland"),
        ("Who was the director of Old Reel?", "P57", "Q90", "Old Reel"),  # of the question set alone
        ("Who was the director of tosh's reel?", "P57", "Q91", "Tosh\u2019s  Reel"),
        ("What genre is The Long Field?", "P136", "Q4", "The Long Field"),
    ],
)
def test_relation_and_subject_are_recognised(project, question, relation, qid, name):
    found = read(project, question)
    assert (found.template.relation, found.subject.qid, found.subject.name) == (relation, qid, name)


def test_published_questions_are_recognised_by_relation_and_name(real):
    known = subjects.templates(real / "entityquestions/relation_query_templates.json")
    with (real / "popqa/popQA.tsv").open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["subj"]][::20]
    for row in rows:
        template, names = subjects.matches(row["question"].upper().rstrip("?"), known)[0]
        assert template.name == row["prop"]
        assert " ".join(row["subj"].upper().split()).rstrip("?") in [name.rstrip("?") for name in names]
    for file in (real / "entityquestions/test").glob("*.json"):
        for row in json.loads(file.read_text(encoding="utf-8"))[::100]:
            found = {template.relation for template, _ in subjects.matches(row["question"], known)}
            assert file.name.split(".")[0] in found  # P131 and P276 have one wording: the statements decide
    assert len(rows) == 714


def test_a_run_without_wikidata_knows_the_subjects_of_its_questions(project, tmp_path):
    data = tmp_path / "data"
    (data / "questions").mkdir(parents=True)
    shutil.copytree(project / "data/questions/popqa", data / "questions/popqa")
    relation, _, number, popularity, question, _ = QUESTIONS[0]
    found = subjects.read(question, data)
    assert (found.template.relation, found.subject.qid, found.subject.popularity) == (
        relation,
        f"Q{number}",
        popularity,
    )
    (data / "knowledge/wikidata").mkdir(parents=True)
    shutil.copy(project / "data/knowledge/wikidata/claims.parquet", data / "knowledge/wikidata")
    with pytest.raises(LongtailError, match=r"entities\.parquet: no such file"):
        subjects.read(question, data)


def test_a_paraphrase_is_asked_in_the_words_that_were_evaluated(project):
    template = read(project, "Who made The Long Field?").template
    assert (template.dataset, template.asked) == ("entityquestions", "Who directed {}?")
    assert read(project, "What is the capital of Norland?").template.dataset == "popqa"  # both have it


def test_of_namesakes_those_with_the_relation_come_first_then_labels_then_views(project):
    found = read(project, "Who was the director of Black?")
    assert [one.qid for one in found.candidates] == ["Q3", "Q1", "Q7", "Q2"]
    assert [one.states for one in found.candidates] == [True, True, True, False]
    assert found.candidates[1].title == "Black (2005 film)"
    assert read(project, "Who was the director of Black?", "Q2").subject.popularity == 50_000
    assert read(project, "Who was the director of Black?", "Q4").subject.label == "The Long Field"  # by another name


@pytest.mark.parametrize(
    ("question", "said"), [("Who was the director of Black?", "no such entity"), ("Why?", "no tem")]
)
def test_a_subject_that_is_none_is_an_error(project, question, said):
    with pytest.raises(LongtailError, match=f"--subject Q77: .*{said}"):
        read(project, question, "Q77")


@pytest.mark.parametrize(
    ("question", "retrieve", "threshold", "why"),
    [
        (
            "Who was the director of Who's There?",
            True,
            71.0,
            "69 views a month are below the threshold of 71: retrieve",
        ),
        # 71 views in the question set, to which thresholds are tuned, and 70 in the entity table
        ("Who was the director of The Long Field?", False, 71.0, "71 views a month reach the threshold of 71"),
        ("What is the capital of The Long Field?", True, None, "70 views a month; retrieving was worth it at any"),
        # and here the question set has fewer
        ("What is Mira Tosh's occupation?", False, 0.0, "700,000 views a month reach the threshold of 0: no retrieval"),
        ("What is the capital of Norland?", True, None, "unknown popularity: plain retrieval"),
        ("Who directed The Long Field?", True, None, "no threshold is tuned"),  # for the questions of EntityQuestions
        ("Who is the author of The Long Field?", True, None, "no threshold is tuned for tiny with bm25: plain"),
        ("Who was the director of Zebedee?", True, None, "no entity is called 'Zebedee': plain retrieval"),
        ("How are you?", True, None, "no relation is recognised in the question: plain retrieval"),
    ],
)
def test_retrieving_is_decided_by_the_threshold_or_said_to_be_plain(project, question, retrieve, threshold, why):
    found = ask.decide(read(project, question), project / "data/adaptive/popularity/thresholds.json", "tiny", "bm25")
    assert (found.retrieve, found.threshold) == (retrieve, threshold)
    assert why in found.why


def test_a_language_model_without_thresholds_retrieves(project):
    found = ask.decide(
        read(project, QUESTIONS[0][4]), project / "data/adaptive/popularity/thresholds.json", "other", "bm25"
    )
    assert found.retrieve
    assert "no threshold is tuned for other with bm25" in found.why


def test_without_thresholds_for_want_of_questions_that_is_said(project, tmp_path):
    (tmp_path / "adaptive/popularity").mkdir(parents=True)
    (tmp_path / "metrics").mkdir()
    thresholds = tmp_path / "adaptive/popularity/thresholds.json"
    thresholds.write_text(json.dumps({"search": "shrunk", "thresholds": {}}))
    (tmp_path / "metrics/adaptive.json").write_text(json.dumps({"popqa": {"tiny": {"questions": 60}}}))
    found = ask.decide(read(project, QUESTIONS[0][4]), thresholds, "tiny", "bm25")
    assert found.retrieve
    assert (
        "tiny with bm25, as no relation has thresholds.min_questions of the 60 questions answered: plain" in found.why
    )


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([" "], "the question is empty"),
        (["Why?", "--lm", "gpt"], "--lm gpt: expected a name of params.yaml's lms: tiny, other"),
        (["Why?", "--lm", "other", "--retriever", "bm25"], "data/models/lm/other: no config.json"),
        (["Why?", "--retriever", "dense"], "data/index/dense/dense/wikipedia: no such index"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(longtail, words, said):
    code, out, err = longtail(*words)
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1


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
