"""The sample's world in German, from Wikidata's dump to judged answers: the same facts by the
same ids.
"""

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from profile_values import values_of

from pipelines.adaptive import subjects
from pipelines.answering import answer, passages
from pipelines.knowledge.entities import build_entities
from pipelines.knowledge.popularity import count_views
from pipelines.knowledge.term_frequency import build_term_frequency
from pipelines.knowledge.triples import build_triples
from pipelines.language import language
from pipelines.language.relations import read_relations
from pipelines.lm.language_model import Generation
from pipelines.params import params_file
from pipelines.questions.popqa import build_popqa
from sample.make.generator import write_world
from sample.make.sizes import WorldSizes


class Knowing:
    """Answers the German prompts of the questions it knows, in capitals; writes a passage where
    it is asked for one.
    """

    name, max_tokens, mixes, votes = "knowing", 1000, True, True

    def __init__(self, known: dict[str, str]) -> None:
        self.known, self.asked = known, []

    def generate(self, prompts, max_tokens, stop="\n"):
        self.asked += prompts
        said = [
            self.known.get(prompt.context.rpartition("F: ")[2].removesuffix(" A:"), "-")
            for prompt in prompts
        ]
        return [Generation(f" {text.upper()}!", -0.5, 3, 1) for text in said]

    def seen(self, prompts, max_tokens):
        return prompts


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, SimpleNamespace]:
    """Language -> its params and its questions, made by the stages' functions from one
    generated world.
    """
    folder, values = (tmp_path_factory.mktemp("world"), values_of("sample"))
    sizes = WorldSizes(entities=60, lm_documents=200, lm_shards=1, pile_documents=1, questions=12)
    values["parts"] |= {"question_sets": ["popqa"], "answered": ["popqa"]}
    values["popqa"]["sampling"] = "all"
    write_world(folder / "data/raw", values["seed"], sizes, ["2021-10"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return {
            code: build(copy.deepcopy(values) | {"language": code}, Path(code))
            for code in ("en", "de")
        }


def build(values: dict, out: Path) -> SimpleNamespace:
    chosen, raw = params_file.parse(values), Path("data/raw")
    build_entities(chosen, raw, out / "wikidata")
    count_views(chosen, out / "wikidata/entities.parquet", raw, out / "popularity")
    build_term_frequency(chosen, out / "wikidata", raw / "c4", out / "term_frequency")
    build_triples(chosen, out)
    build_popqa(chosen, out / "popqa", out / "triples/triples.parquet")
    return SimpleNamespace(params=chosen, questions=pq.read_table(out / "popqa/popqa.parquet"))


def test_the_same_facts_are_asked_in_both_languages(built):
    """Each has its own words and views."""
    english, german = (
        {row["question_id"]: row for row in built[code].questions.to_pylist()}
        for code in ("en", "de")
    )
    assert len(english) > 100
    assert german.keys() == english.keys()
    asked = {code: read_relations(language=language.read_language(code)) for code in ("en", "de")}
    for question_id, row in german.items():
        other = english[question_id]
        assert all(row[name] == other[name] for name in ("id", "s_uri", "split", "prop"))
        assert (
            row["question"]
            == asked["de"][row["relation"]].question(row["subj"])
            != other["question"]
        )
        assert other["question"] == asked["en"][row["relation"]].question(other["subj"])
    views = [(german[one]["s_pop"] or 0, english[one]["s_pop"] or 0) for one in english]
    assert all(there < here for there, here in views if here)
    assert sum(there for there, _ in views) > 0


def test_german_questions_are_judged_in_german(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    questions, chosen = built["de"].questions, built["de"].params
    rows = {row["question_id"]: row for row in questions.to_pylist() if row["split"] == "test"}
    known = {row["question"]: row["obj"] for number, row in enumerate(rows.values()) if number % 2}
    lm = Knowing(known)
    settings = chosen.answer.model_copy(update={"n_shots": 2, "max_questions": 40})
    setup = answer.Setup(
        "popqa", "closed_book", lm, None, settings, chosen.replug, 0, "k", None, "de"
    )
    answered = answer.answer(questions, setup).to_pylist()
    assert len(answered) == 40
    for prompt in lm.asked:
        shots, question = prompt.context.rpartition("\n\n")[::2]
        assert re.fullmatch("F: .* A:", question)
        assert shots.count("F: ") == shots.count(" A: ") == 2
        assert "Q: " not in prompt.context
    right = {row["question_id"]: row["correct_word"] for row in answered}
    assert right == {
        one: known.get(rows[one]["question"]) in rows[one]["possible_answers"] for one in right
    }
    assert 0 < sum(right.values()) < 40
    lm.asked.clear()
    passages.written(lm, 20, language.read_language("de")).find(["Welche Hauptstadt hat Norland?"])
    wanted = "Schreibe einen Hintergrundtext aus Wikipedia, der die folgende Frage beantwortet."
    assert [prompt.context for prompt in lm.asked] == [f"{wanted} Welche Hauptstadt hat Norland?"]


def test_a_question_is_recognised_by_its_languages_templates():
    for code, question, relation, subject in (
        ("de", "wer schrieb „Faust“?", "P50", "Faust"),
        ("fr", "Dans quel pays se trouve Paris ?", "P17", "Paris"),
        ("es", "¿Quién dirigió Volver?", "P57", "Volver"),
        ("ru", "Столицей чего является Москва?", "P1376", "Москва"),
        ("ja", "東京はどこの首都ですか？", "P1376", "東京"),  # noqa: RUF001
        ("zh", "《红楼梦》的作者是谁", "P50", "《红楼梦》"),
    ):
        (template, names), *_ = subjects.matches(
            question, subjects.templates(Path("none"), language.read_language(code))
        )
        assert (template.relation, names[0]) == (relation, subject)
