"""Every language's file says all that a run needs, and a faulty one is named."""

import shutil

import pytest
import Stemmer
import yaml

from flows import profiles
from pipelines import code, language, params_file
from pipelines.errors import LongtailError
from pipelines.relations import RELATIONS, read_relations
from pipelines.retrieval.bm25 import Analyser


@pytest.mark.parametrize("name", language.codes())
def test_a_language_has_templates_prompts_and_a_stemmer_that_there_is(name):
    spoken = language.read(name)
    relations = read_relations(language=spoken)
    assert list(relations) == list(RELATIONS), "all relations, in their order"
    asked = {relation.question("Velm") for relation in relations.values()}
    assert len(asked) == len(relations), "no two relations ask the same"
    assert all(question.endswith(("?", "？")) for question in asked)  # noqa: RUF001
    assert spoken.terms.stemmer in (None, *Stemmer.algorithms())
    assert spoken.answered("Q", "A").startswith(spoken.asked("Q"))
    assert spoken.codes[-1] == "mul"
    assert "en" not in spoken.codes or name == "en"


def test_each_languages_terms_have_a_name_of_their_own_and_another_languages_file_changes_no_stages_code():
    names = [Analyser(language.read(name)).name for name in language.codes()]
    assert len(set(names)) == len(names) >= 7
    assert "NFKC, lower case, words, Lucene's English stop words, Snowball english" in names
    reached = code.files("pipelines.knowledge.entities")
    assert {file.name for file in reached if file.parent == language.FOLDER} == {"en.yaml"}
    assert list(code.of_languages()) == language.codes()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"templates": {"P36": "Hauptstadt?"}}, "P36's template 'Hauptstadt\\?' must have one {}"),
        ({"prompt": {"question": "A: {answer} F: {question}", "passage": "{question}"}}, "prompt.question"),
        ({"prompt": {"question": "F: {question}", "passage": "{question}"}}, "prompt.question"),
        ({"prompt": {"question": "{question} {answer}", "passage": "Text"}}, "prompt.passage"),
        ({"labels": "de"}, "Expected `array`"),
        ({"lables": ["de"]}, "unknown field"),
    ],
)
def test_a_faulty_file_is_named(tmp_path, monkeypatch, change, problem):
    shutil.copy(language.FOLDER / "de.yaml", tmp_path / "xx.yaml")
    monkeypatch.setattr(language, "FOLDER", tmp_path)
    values = yaml.safe_load((tmp_path / "xx.yaml").read_text(encoding="utf-8")) | change
    (tmp_path / "xx.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    with pytest.raises(LongtailError, match=rf"languages/xx\.yaml: .*{problem}"):
        language.read("xx")


def test_an_unknown_language_and_published_questions_in_another_one_are_param_errors(root):
    values = yaml.safe_load(profiles.compose("sample", root))
    with pytest.raises(LongtailError, match=r"language.* de, en, es, fr, ja, ru, zh"):
        params_file.parse(values | {"language": "xx"})
    with pytest.raises(LongtailError, match=r"no such file as xx\.yaml, expected one of de, en"):
        language.read("xx")
    values["language"] = "de"
    with pytest.raises(LongtailError, match=r"parts: .*question_sets: entityquestions is English"):
        params_file.parse(values)
    values["parts"] |= {"question_sets": ["popqa"], "answered": ["popqa"]}
    assert params_file.parse(values).language == "de"
    values["popqa"]["source"] = "both"
    with pytest.raises(LongtailError, match=r"popqa\.source should be wikidata"):
        params_file.parse(values)


def test_stages_that_read_the_language_follow_its_file(root):
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"].values()
    reading = [entries for stage in stages if "language" in (entries := stage.get("params", []))]
    assert len(reading) >= 16
    for entries in reading:
        (fingerprints,) = (entry["data/code.json"] for entry in entries if isinstance(entry, dict))
        assert "language.${language}" in fingerprints
