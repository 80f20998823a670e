"""What `longtail ask` reads in a question, relation and subject, and what it decides by the tuned
thresholds.
"""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from asked_run import CUTS, QUESTIONS, rule, write_tables

from pipelines.adaptive import ask, subjects, tuning
from pipelines.adaptive.pairs import Choice
from pipelines.adaptive.rule import POLICY_NAMES, as_json, of_tuned
from pipelines.errors import LongtailError

RELATION, SUBJECT, NUMBER, POPULARITY, QUESTION, _ = QUESTIONS[0]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run leaves of what a decision needs."""
    folder = tmp_path_factory.mktemp("project") / "data"
    write_tables(folder)
    return folder


@pytest.mark.parametrize(
    ("question", "relation", "qid", "name"),
    [
        ("  who WAS the  director of the long field", "P57", "Q4", "The Long Field"),
        ("Who is the author of The Long Field ?", "P50", "Q4", "The Long Field"),
        ("Who was the director of the black film?", "P57", "Q1", "The Black Film"),  # an alias
        ("Who was the director of Who\u2019s There?", "P57", "Q5", "Who's There?"),  # the mark is the name's
        ("Who was the director of Who's There??", "P57", "Q5", "Who's There?"),
        ("who directed The Long Field", "P57", "Q4", "The Long Field"),  # EntityQuestions' wording
        ("What is the capital of Norland?", "P36", "Q6", "Norland"),
        ("Who was the director of tosh's reel?", "P57", "Q91", "Tosh\u2019s  Reel"),  # of the question set alone
    ],
)  # fmt: skip
def test_relation_and_subject_are_recognised(data, question, relation, qid, name):
    found = subjects.read_question(question, data)
    assert (found.template.relation, found.subject.qid, found.subject.name) == (relation, qid, name)


def test_published_questions_are_recognised_by_relation_and_name(real):
    known = subjects.templates(real / "entityquestions/relation_query_templates.json")
    with (real / "popqa/popQA.tsv").open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["subj"]][::20]
    for row in rows:
        template, names = subjects.matches(row["question"].upper().rstrip("?"), known)[0]
        assert template.name == row["prop"]
        assert " ".join(row["subj"].upper().split()).rstrip("?") in [
            name.rstrip("?") for name in names
        ]
    for file in (real / "entityquestions/test").glob("*.json"):
        for row in json.loads(file.read_text(encoding="utf-8"))[::100]:
            found = {template.relation for template, _ in subjects.matches(row["question"], known)}
            # P131 and P276 have one wording: the statements decide
            assert file.name.split(".")[0] in found
    assert len(rows) == 714


def test_a_run_without_wikidata_knows_its_subjects(data, tmp_path):
    shutil.copytree(data / "questions/popqa", tmp_path / "questions/popqa")
    found = subjects.read_question(QUESTION, tmp_path)
    assert found.template.relation == RELATION
    assert (found.subject.qid, found.subject.popularity) == (f"Q{NUMBER}", POPULARITY)
    (tmp_path / "questions/popqa/popqa.parquet").unlink()
    with pytest.raises(LongtailError, match=r"popqa\.parquet: no such file"):
        subjects.read_question(QUESTION, tmp_path)


def test_a_paraphrase_is_asked_in_the_words_that_were_evaluated(data):
    template = subjects.read_question("Who made The Long Field?", data).template
    assert (template.dataset, template.asked) == ("entityquestions", "Who directed {}?")
    # both have it
    assert (
        subjects.read_question("What is the capital of Norland?", data).template.dataset == "popqa"
    )


def test_namesakes_with_the_relation_come_first(data):
    """Then those with the label, then the most viewed."""
    black = "Who was the director of Black?"
    found = subjects.read_question(black, data)
    known = [(one.qid, one.states) for one in found.candidates]
    assert known == [("Q3", True), ("Q1", True), ("Q7", True), ("Q2", False)]
    assert found.candidates[1].title == "Black (2005 film)"
    assert subjects.read_question(black, data, "Q2").subject.popularity == 50_000
    # by another name
    assert subjects.read_question(black, data, "Q4").subject.label == "The Long Field"
    for question, said in ((black, "no such entity"), ("Why?", "no tem")):
        with pytest.raises(LongtailError, match=f"--subject Q77: .*{said}"):
            subjects.read_question(question, data, "Q77")


@pytest.mark.parametrize(
    ("question", "retrieve", "cut", "why"),
    [
        ("Who was the director of Who's There?", True, 71.0, "69 views a month; 69 is below the threshold of its"),
        # 71 views in the question set, to which thresholds are tuned, and 70 in the entity table
        (QUESTION, False, 71.0, "71 is not below the threshold of its relation, 71"),
        ("What is the capital of The Long Field?", True, None, "70 is below the threshold of its relation, which"),
        ("What is the capital of The Long Field?", True, None, "to retrieve; more than was tuned on"),
        ("What is Mira Tosh's occupation?", False, 0.0, "700,000 is not below"),  # the set has fewer
        ("What is Mira Tosh's occupation?", False, 0.0, "the threshold of all relations together, 0"),
        ("What is the capital of Norland?", True, None, "page views of Norland (Q6) are not known, so bm25 answers"),
        ("Who directed The Long Field?", True, None, "No threshold is tuned"),  # for the questions of EntityQuestions
        ("Who is the author of The Long Field?", False, 60.0, "together, as the rule has none of its relation, 60"),
        ("Who was the director of Zebedee?", True, None, "No subject in this run's tables is called 'Zebedee', so"),
        ("How are you?", True, None, "The question follows no template of this run, so bm25 answers"),
    ],
)  # fmt: skip
def test_retrieving_is_decided_by_the_threshold(data, question, retrieve, cut, why):
    found = ask.decide_question(
        subjects.read_question(question, data),
        data / "adaptive/popularity/thresholds.json",
        Choice.of_name("tiny", "bm25"),
    )
    assert (found.retrieve, found.threshold) == (retrieve, cut)
    assert why in found.why


@pytest.mark.parametrize(("policy", "cut"), [("always", None), ("never", 0.0)])
def test_thresholds_that_lose_accuracy_are_not_asked(data, tmp_path, policy, cut):
    verdict = f"{POLICY_NAMES[policy]}: adaptive retrieval is clearly less accurate (-0.1 points [-0.3, -0.0])"
    in_use = rule(policy=policy, verdict=verdict, thresholds=dict.fromkeys(CUTS, cut), together=cut)
    (tmp_path / "thresholds.json").write_text(
        json.dumps({"rules": {"popqa": {"tiny": {"bm25": in_use}}}})
    )
    for question in ("Who was the director of Who's There?", QUESTION):
        found = ask.decide_question(
            subjects.read_question(question, data),
            tmp_path / "thresholds.json",
            Choice.of_name("tiny", "bm25"),
        )
        assert (found.retrieve, found.threshold) == (policy == "always", None)
        assert found.why.endswith(f"views a month; {verdict}")


def test_without_thresholds_it_retrieves_and_says_why(data):
    reading = subjects.read_question(QUESTION, data)
    found = ask.decide_question(
        reading, data / "adaptive/popularity/thresholds.json", Choice.of_name("other", "bm25")
    )
    assert found.retrieve
    assert "No threshold is tuned for other with bm25, so bm25 answers" in found.why


def test_without_a_retriever_the_one_with_the_best_thresholds_answers(tmp_path):
    """Pairs of two methods with passages, and methods that can't be searched with, don't count."""
    assert ask.best_retriever("tiny", tmp_path) is None
    accuracies = {"lsr": 0.4, "bm25": 0.5, "dense": 0.3, "replug_lsr": 0.6, "bm25_below_dense": 0.7}
    entries = {}
    for name, accuracy in accuracies.items():
        entries[name] = {"held_out": {"adaptive": {"value": accuracy}}}
    file = tmp_path / ask.THRESHOLDS
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"rules": {"popqa": {"tiny": entries}}}), encoding="utf-8")

    assert ask.best_retriever("tiny", tmp_path) == "bm25"
    assert ask.best_retriever("other", tmp_path) is None


def test_within_a_budget_fewer_views_decide(data, tmp_path):
    """Retrieving helps with subjects of fewer than 80 views; half of the questions may retrieve."""
    views = np.arange(1.0, 101.0)
    popular = views >= 80
    names = views.astype(str)
    decided = {}
    for budget in (1, 0.5):
        settings = tuning.DEFAULTS.model_copy(update={"budget": budget, "search": "exact"})
        tuned = tuning.tune_arrays(
            views,
            np.full(100, "P57"),
            names,
            popular,
            ~popular,
            settings=settings,
            seed=0,
            resamples=10,
            searches=("exact",),
        )
        in_use = as_json(of_tuned(tuned, "closed_book", "bm25", "exact", None))
        file = tmp_path / f"{budget}.json"
        file.write_text(json.dumps({"rules": {"popqa": {"tiny": {"bm25": in_use}}}}))
        reading = subjects.read_question("Who was the director of Who's There?", data)
        found = ask.decide_question(reading, file, Choice.of_name("tiny", "bm25"))
        assert found.why.startswith("69 views a month")
        decided[budget] = found.retrieve
    assert decided == {1: True, 0.5: False}
