"""The relations and the languages that ask about them: one entry or file for a new one, and a
faulty one is named.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import knowledge_tables
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import Stemmer
import yaml
from profile_values import values_of

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import FILE, RELATIONS, Relation, read_relations
from pipelines.params import params_file
from pipelines.questions.popqa import build_popqa
from pipelines.retrieval.analyser import Analyser
from pipelines.work import code

pytestmark = pytest.mark.usefixtures("workplace")


def test_there_are_the_sixteen_relations_of_the_paper():
    sixteen = "P106 P136 P17 P57 P58 P462 P641 P25 P19 P22 P162 P1376 P86 P140 P50 P36"
    assert " ".join(RELATIONS) == sixteen
    assert RELATIONS["P19"].name == "place of birth"
    assert RELATIONS["P19"].question("Ada {} Lovelace") == "In what city was Ada {} Lovelace born?"


def asking(*pids: str) -> Language:
    """A language that asks about these relations alone."""
    return msgspec.structs.replace(
        ENGLISH, name="More", templates=dict.fromkeys(pids, "Who is the child of {}?")
    )


def questions(relations: dict[str, Relation]) -> list[dict]:
    """PopQA from 100 triples of each of three relations, of which it keeps 30."""
    popqa = knowledge_tables.popqa(per_relation=30, sampling="term_frequency")
    settings = knowledge_tables.chosen(popqa=popqa, popularity=SimpleNamespace(month="2021-10"))
    rows = [
        {
            "s_qid": f"Q{s}",
            "p_pid": f"P{p}",
            "o_qid": f"Q{s * p}",
            "s_label": f"Name{s}",
            "o_label": f"Name{s * p}",
        }
        | {"s_wiki_title": f"Name{s}", "o_wiki_title": None, "s_aliases": [""], "o_aliases": [""]}
        | {"s_pop": 7, "o_pop": 0, "term_frequency": 100}
        for p in (19, 40, 106)
        for s in range(1, 101)
    ]
    pq.write_table(pa.Table.from_pylist(rows), "triples.parquet")
    build_popqa(settings, Path("popqa"), Path("triples.parquet"), Path("none.tsv"), relations)
    return pq.read_table("popqa/popqa.parquet").to_pylist()


def test_an_added_entry_changes_nothing_else():
    Path("r.yaml").write_text(FILE.read_text() + "P40: child\n")
    before = questions(RELATIONS)
    after = questions(RELATIONS | read_relations(Path("r.yaml"), asking("P40")))
    assert [row for row in after if row["relation"] != "P40"] == before
    added = [row for row in after if row["relation"] == "P40"]
    assert (len(before), len(added)) == (60, 30)
    assert {row["question"] for row in added} <= {
        f"Who is the child of Name{i}?" for i in range(1, 101)
    }
    assert {row["prop"] for row in added} == {"child"}


def test_a_faulty_entry_is_named():
    """The first language has a template of P40."""
    for text in ("child: child", "P40: {name: child}", "P40: child\nP41: child", "P41: child of"):
        Path("r.yaml").write_text(text)
        with pytest.raises(LongtailError, match=r"r\.yaml: .*(P40|child)"):
            read_relations(Path("r.yaml"), asking("P40"))
    Path("r.yaml").write_text(FILE.read_text() + "P40: child\n")
    with pytest.raises(LongtailError, match=r"languages/en\.yaml: no template of P40"):
        read_relations(Path("r.yaml"))


@pytest.mark.parametrize("name", language.codes())
def test_a_language_has_what_its_entry_names(name):
    spoken = language.read_language(name)
    relations = read_relations(language=spoken)
    assert list(relations) == list(RELATIONS), "all relations, in their order"
    asked = {relation.question("Velm") for relation in relations.values()}
    assert len(asked) == len(relations), "no two relations ask the same"
    assert all(question.endswith(("?", "？")) for question in asked)  # noqa: RUF001
    assert spoken.terms.stemmer in (None, *Stemmer.algorithms())
    assert spoken.answered("Q", "A").startswith(spoken.asked("Q"))
    assert spoken.codes[-1] == "mul"
    assert "en" not in spoken.codes or name == "en"


def test_another_languages_file_changes_no_code():
    names = [Analyser(language.read_language(name)).name for name in language.codes()]
    assert len(set(names)) == len(names) >= 7
    assert "folded NFKC, words and pairs, Lucene's English stop words, Snowball english" in names
    for spoken, expected in (("en", {"en.yaml"}), ("de", {"de.yaml", "en.yaml"})):
        reached = code.files("pipelines.knowledge.entities", language=spoken)
        assert {file.name for file in reached if file.parent == language.FOLDER} == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"templates": {"P36": "Hauptstadt?"}}, "P36's template 'Hauptstadt\\?' must have one {}"),
        ({"prompt": {"question": "A: {answer} F: {question}", "passage": "{question}"}}, "prompt.question"),
        ({"prompt": {"question": "{question} {answer}", "passage": "Text"}}, "prompt.passage"),
        ({"labels": "de"}, "Expected `array`"),
        ({"lables": ["de"]}, "unknown field"),
    ],
)  # fmt: skip
def test_a_faulty_file_is_named(tmp_path, monkeypatch, change, problem):
    shutil.copy(language.FOLDER / "de.yaml", tmp_path / "xx.yaml")
    monkeypatch.setattr(language, "FOLDER", tmp_path)
    values = yaml.safe_load((tmp_path / "xx.yaml").read_text(encoding="utf-8")) | change
    (tmp_path / "xx.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    with pytest.raises(LongtailError, match=rf"languages/xx\.yaml: .*{problem}"):
        language.read_language("xx")


def test_an_unknown_language_is_a_param_error():
    values = values_of("sample")
    with pytest.raises(LongtailError, match=r"language.* de, en, es, fr, ja, ru, zh"):
        params_file.parse(values | {"language": "xx"})
    with pytest.raises(LongtailError, match=r"no such file as xx\.yaml, expected one of de, en"):
        language.read_language("xx")
    values["language"] = "de"
    with pytest.raises(
        LongtailError,
        match=r"parts\.question_sets .*with language: de; entityquestions.* is English",
    ):
        params_file.parse(values)
    values["parts"] |= {"question_sets": ["popqa"], "answered": ["popqa"]}
    assert params_file.parse(values).language == "de"
    values["popqa"]["source"] = "both"
    with pytest.raises(LongtailError, match=r"popqa\.source is 'both': should be wikidata"):
        params_file.parse(values)
