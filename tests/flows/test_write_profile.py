"""`longtail init` writes a profile that composes, holds what the folder allows, and says what is
missing.
"""

import os
import re
from pathlib import Path

import hostile
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import quick_project
import yaml
from user_folder import FILES, QUESTION, bert, composed, gpt, write

from flows import dvc_repo, profiles
from flows.commands import running
from flows.init import data_files, write_profile
from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.questions import published


def fetched(params: Params) -> dict[str, list[str]]:
    """What stage fetch would bring: data set -> files."""
    root = Path(params.fetch.root)
    return {
        key: sorted(file.name for glob in globs for file in root.glob(glob))
        for key, globs in params.fetch.files.items()
    }


def test_a_file_of_every_data_set_is_recognised(checkout):
    assert {key.partition("/")[0] for key in FILES} == set(catalogue.DATASETS)
    for key, files in FILES.items():
        write(checkout, files)
        for name in files:
            assert data_files.recognise(checkout / name) == (key, ""), name


MMLU = {"question": "", "subject": "", "choices": [""], "answer": 0}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("dump-pages-articles.xml.gz", "<mediawiki><page>", "wikipedia"),
        ("wiki.jsonl", {"id": "1", "title": "Velm", "text": "A harbour."}, "wikipedia"),
        ("flashrag_nq_test.jsonl", {"question": "where", "golden_answers": ["here"]}, "nq"),
        ("intermediate_data.json", [{"question": "?", "output": {"retrieval_result": [{"contents": "A."}]}}], "retrieval"),
        ("kilt.jsonl", {"input": "?", "output": [{"answer": "x", "provenance": [{"text": "A."}]}]}, "retrieval"),
        ("hipporag.json", [{"question": "?", "docs": ["A."], "doc_scores": [1.0]}], "retrieval"),
        ("c4.jsonl", {"text": "A text.", "url": "https://a.example"}, "pile"),
        ("photo.json", {"width": 3}, ""),
        ("questions.jsonl", QUESTION, ""),
        ("nq-train.jsonl", QUESTION, ""),
        ("pageviews-20220301-000000", "en Velm 12 0\n", ""),
        ("nq/test.jsonl", {"question": "where"}, ""),
        ("p.json", {"features": [], "rows": [{"row": dict.fromkeys(published.COLUMNS)}]}, "popqa"),
        ("nq.json", {"features": [], "rows": [{"row": QUESTION}]}, ""),
        ("popqa/test.parquet", dict.fromkeys(published.COLUMNS, ""), "popqa"),
        ("popqa.csv", ",".join(published.COLUMNS), ""),
        ("P17.train.json", [{"question": "Where?", "answers": ["Nor"]}], ""),
        ("page.jsonl", "<!doctype html><p>404", ""),
        ("empty.jsonl", "", ""),
        ("all/test-00000-of-00001.parquet", MMLU, "mmlu/test"),
        ("validation.parquet", {"question": "where", "answer": {"value": "here", "aliases": [""]}}, "triviaqa"),
        ("nq_open/validation.parquet", QUESTION, "nq"),
        ("wikitext-103/test.parquet", {"text": ""}, "wikitext"),
        ("0.parquet", {"text": "", "meta": {"pile_set_name": ""}}, "pile"),
        ("0.parquet", {"id": "", "url": "", "title": "", "text": ""}, "wikipedia"),
        ("0.parquet", {"image": ""}, ""),
    ],
)  # fmt: skip
def test_other_names_and_layouts_are_told_by_columns(checkout, name, content, expected):
    (checkout / name).parent.mkdir(exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([content]), checkout / name)
    else:
        write(checkout, {name: content})
    seen = data_files.recognise(checkout / name)
    assert seen.data_set == expected
    assert bool(seen.reason) == (not expected)
    assert "\n" not in seen.reason


def test_a_folder_with_everything_runs_everything(checkout):
    for files in FILES.values():
        write(checkout, files)
    gpt(checkout / "models/gpt2")
    bert(checkout / "models/encoder")
    write_profile.init(checkout, None, lsr=True)
    params = composed()
    sample = params_file.parse(yaml.safe_load(profiles.compose("sample")))
    sets = ["popqa", "entityquestions", "mmlu", "nq", "triviaqa"]
    chosen = {
        "tuned": ["encoder"],
        "question_sets": sets,
        "answered": sets,
        "corpora": ["wikipedia", "pile", "wikitext"],
        "scored": ["pile", "wikitext"],
    }
    assert (params.retrievers, params.parts) == (
        ["encoder"],
        sample.parts.model_copy(update=chosen),
    )
    assert fetched(params) == {
        key: sorted(Path(name).name for name in files) for key, files in FILES.items()
    }
    assert (params.popularity.month, params.popqa.source) == ("2022-03", "published")
    assert params.popqa.train_share > 0
    assert (params.lsr.queries, params.lsr.learning_rate) == ("mixed", 0.00002)


def test_many_gigabytes_are_not_stored_twice(checkout, monkeypatch):
    write(checkout, FILES["popqa"])
    quick_project.dvc_init(Path.cwd())
    assert not any("cache.type" in line for line in write_profile.init(checkout, "small"))
    monkeypatch.setattr(dvc_repo, "LINKED_BYTES", 1)
    assert any("cache.type" in line for line in write_profile.init(checkout, "large"))
    assert "hardlink,reflink" in Path(".dvc/config.local").read_text()


def test_downloads_of_many_gigabytes_are_not_stored_three_times(checkout, capsys):
    quick_project.dvc_init(Path.cwd())
    running.init(profile="sample")
    assert not dvc_repo.links_outputs(Path.cwd())
    running.init(profile="monthly")
    assert dvc_repo.LINKED in capsys.readouterr().out
    assert dvc_repo.links_outputs(Path.cwd())


def test_questions_passages_and_models_are_enough(checkout):
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "gpt2"), bert(checkout / "encoder")
    said = write_profile.init(checkout, None)
    params = composed()
    assert said[-2:] == ["  longtail plan --profile data", "  longtail run --profile data"]
    assert (params.lms, params.lm["gpt2"].path) == (["gpt2"], str(checkout / "gpt2"))
    retriever = params.retriever[params.retrievers[0]]
    assert retriever.path == str(checkout / "encoder")
    assert params.tokenizer.path == str(checkout / "gpt2")
    parts = params.parts
    expected = (["popqa"], "wikipedia", ["popularity"], [])
    assert (parts.answered, parts.datastore, parts.rules, parts.tuned) == expected
    assert (parts.knowledge, parts.scored, parts.passages) == ([], [], [])
    text = Path("conf/profile/data.yaml").read_text()
    assert "# For a short run: " in text
    assert "replug_lsr" not in text


def test_parts_whose_data_are_missing_are_left_out_and_named(checkout):
    for name in ("popqa", "wikipedia", "wikidata", "entityquestions", "nq"):
        write(checkout, FILES[name])
    (views,) = FILES["pageviews"].values()
    write(
        checkout, {f"views/pageviews-2022{month}-user.bz2": views for month in ("01", "02", "03")}
    )
    gpt(checkout / "gpt2")
    said = write_profile.init(checkout, None)
    params = composed()
    assert params.parts.question_sets == params.parts.answered == ["popqa", "nq"]
    assert params.answer.sets["nq"].n_shots == 0, "training files are not recognised"
    # no dump is copied that nothing reads
    assert set(params.fetch.files) == {"popqa", "wikipedia", "nq"}
    assert "not used: wikidata: triples need c4 too" in said
    assert (
        "an encoder (Hugging Face's layout). The sample's small one"
        in Path("conf/profile/data.yaml").read_text()
    )
    write(checkout, FILES["c4"])
    said = "\n".join(write_profile.init(checkout, None, force=True))
    assert composed().popularity.month == "2022-03"
    assert composed().fetch.files["pageviews"] == ["views/pageviews-202203-user.bz2"]
    assert "*-redirect.sql.gz (some 0.2 GB) and *-page.sql.gz (some 2 GB)" in said


def test_without_passages_answers_come_from_elsewhere(checkout):
    """The Pile alone is scored."""
    write(checkout, FILES["popqa"] | FILES["nq"])
    gpt(checkout / "gpt2")
    said = "\n".join(write_profile.init(checkout, None))
    params = composed()
    assert (params.lms, params.parts.corpora) == ([], [])
    assert params.parts.answered == ["popqa", "nq"]
    assert "longtail imports" in said
    write(Path("texts"), FILES["pile"])
    write_profile.init(Path("texts"), None)
    params = composed("texts")
    assert (params.parts.scored, params.parts.answered, params.lms) == (["pile"], [], ["tiny"])
    assert (params.lm["tiny"].path, params.tokenizer.path) == (
        "sample/models/lm",
        "sample/models/tokenizer",
    )


def test_of_files_that_exclude_each_other_one_is_used(checkout, tmp_path):
    """Links and odd names are followed."""
    write(tmp_path / "elsewhere", FILES["wikipedia"])
    (checkout / "psgs_w100.tsv.gz").symlink_to(tmp_path / "elsewhere/psgs_w100.tsv.gz")
    (checkout / "loop").symlink_to(checkout)
    questions = FILES["popqa"]["popQA.tsv"]
    write(
        checkout,
        {
            "a/enwiki-pages-articles.xml": "<mediawiki>",
            "a.tsv": questions,
            "new [1]*/popQA.tsv": questions,
        },
    )
    write(
        checkout, {f"p/{i}.jsonl": {"text": "a"} for i in range(3)} | {"two/0.jsonl": {"text": "a"}}
    )
    said, params = write_profile.init(checkout, None), composed()
    for left_out, used, why in (
        ("a/enwiki-pages-articles.xml", "psgs_w100.tsv.gz", "files of one layout are read"),
        ("a.tsv", "new [1]*/popQA.tsv", "one table of PopQA is read"),
        ("two/0.jsonl", "p/0.jsonl", "it has the same content"),
    ):
        assert f"not used: {left_out}: {used} is used in its place: {why}" in said
    pile = [f"{i}.jsonl" for i in range(3)]
    expected = {"wikipedia": ["psgs_w100.tsv.gz"], "popqa": ["popQA.tsv"], "pile": pile}
    assert fetched(params) == expected


PASSAGES = {"corpus.jsonl": {"_id": "d0", "title": "Velm", "text": "A harbour."}}
EXTRACTED = {
    f"{folder}/wiki_0{number}": {
        "id": "1",
        "url": "x",
        "title": folder,
        "text": f"A harbour {number}.",
    }
    for folder in ("AA", "AB")
    for number in range(2)
}


@pytest.mark.parametrize(
    ("files", "models", "used", "parts"),
    [
        (PASSAGES, "", "Wikipedia: corpus.jsonl", {}),
        ({"enwiki-pages-articles.xml": "<mediawiki>"}, "", "Wikipedia: enwiki-pages-articles.xml", {}),
        (PASSAGES, "le", "encoder encoder", {}),
        (PASSAGES | {"config.json": {"lr": 1}, "modules.json": []}, "", "Wikipedia: corpus.jsonl", {}),
        (FILES["wikipedia"] | FILES["retrieval"], "e", "questions with passages", {"passages": ["retrieval"]}),
        (EXTRACTED | FILES["popqa"], "", "AA/wiki_00, AA/wiki_01 and 2 more", {"answered": ["popqa"]}),
        (FILES["wikitext"], "le", "WikiText: ", {"corpora": ["wikitext"], "scored": ["wikitext"], "datastore": None}),
    ],
)  # fmt: skip
def test_whatever_lies_there_alone_makes_a_profile(checkout, files, models, used, parts):
    write(checkout, files)
    if "l" in models:
        gpt(checkout / "gpt2")
    if "e" in models:
        bert(checkout / "encoder")
    said, params = "\n".join(write_profile.init(checkout, None)), composed()
    expected = {
        "corpora": ["wikipedia"],
        "datastore": "wikipedia",
        "answered": [],
        "passages": [],
        "scored": [],
    } | parts
    assert {name: getattr(params.parts, name) for name in expected} == expected
    assert used in said
    assert "in its place" not in said
    asks = bool(params.parts.answered or params.parts.scored)
    assert (bool(params.lms), "longtail search" in said) == (asks, not asks)
    assert ("not used: language model gpt2: there are no questions on texts" in said) == (
        models == "le" and not asks
    )


@pytest.mark.parametrize(
    ("files", "models", "said"),
    [
        (FILES["wikitext"], "", "wikitext: it needs a language model and an encoder"),
        (FILES["wikitext"], "l", "wikitext: it needs a language model and an encoder"),
        (FILES["c4"], "", "c4: triples need wikidata and pageviews too"),
        ({"queries.jsonl": {"_id": "q0", "text": "where is velm"}}, "", "queries.jsonl: queries or judgements"),
        ({"a.csv": "id,text,title\n"}, "", "a.csv: PopQA and passages are read from columns between tabs"),
        ({}, "l", "language model gpt2: there are no questions on texts"),
    ],
)  # fmt: skip
def test_what_makes_no_run_alone_is_refused_with_what_it_lacks(checkout, files, models, said):
    write(checkout, files)
    if models:
        gpt(checkout / "gpt2")
    with pytest.raises(
        LongtailError,
        match=rf"nothing in it that a run can be made of; not used: {said}.*looked for",
    ):
        write_profile.init(checkout, None)


def test_popqa_and_passages_need_no_index_or_encoder(checkout):
    write(checkout, FILES["popqa"] | FILES["retrieval"])
    gpt(checkout / "gpt2")
    said, params = "\n".join(write_profile.init(checkout, None)), composed()
    assert "used: questions with passages: with_passages.jsonl" in said
    assert params.ways == ["closed_book", "given", "replug_given"]
    assert (params.parts.corpora, params.parts.datastore, params.retrievers) == ([], None, [])
    assert params.lms == ["gpt2"]


def test_files_of_one_name_are_used_and_copies_are_not(checkout):
    write(checkout, EXTRACTED | {"copy/wiki_00": EXTRACTED["AB/wiki_00"]})
    said = write_profile.init(checkout, None)
    assert composed().fetch.files == {"wikipedia": sorted(EXTRACTED)}
    assert (
        "not used: copy/wiki_00: AB/wiki_00 is used in its place: it has the same content" in said
    )


def test_a_profile_is_not_written_over_without_force(checkout, tmp_path):
    write(checkout, FILES["popqa"])
    write_profile.init(checkout, "mine")
    path = Path("conf/profile/mine.yaml")
    path.write_text(path.read_text() + "seed: 1\n")
    with pytest.raises(
        LongtailError, match=r"conf/profile/mine\.yaml: is there already; --force .*--name"
    ):
        write_profile.init(checkout, "mine")
    assert "seed: 1" in path.read_text()
    write_profile.init(checkout, "mine", force=True)
    assert "seed: 1" not in path.read_text()
    numbers = ("null", "12", "007", "on", "1e5", "2e-3", "1_0", "nan", "inf", "2020-01-01", "0x1f")
    for name in ("A b", "../x", *numbers):
        with pytest.raises(
            LongtailError,
            match=rf"^--name .*{'to YAML; try' if name in numbers else 'expected lower'}",
        ):
            write_profile.init(checkout, name)
        assert not Path(f"conf/profile/{name}.yaml").exists()
    for folder, name in (
        ("Ünder 2.0", "nder-2-0"),
        ("2021", "data-2021"),
        ("1e5", "data-1e5"),
        ("1e5b", "1e5b"),
    ):
        assert write_profile._profile_name(tmp_path / folder, None) == name


def test_a_profile_that_does_not_compose_is_not_left_behind(checkout, monkeypatch):
    write(checkout, FILES["popqa"])
    monkeypatch.setattr(profiles, "compose", lambda name: 1 / 0)
    path = Path("conf/profile/mine.yaml")
    for earlier in (None, "earlier"):
        path.write_text(earlier) if earlier else path.unlink(missing_ok=True)
        with pytest.raises(ZeroDivisionError):
            write_profile.init(checkout, "mine", force=True)
        assert (path.read_text() if path.exists() else None) == earlier


@pytest.mark.parametrize(
    ("head", "name", "code"),
    [
        ('<mediawiki version="0.11" xml:lang="ru">', "dump.xml", "ru"),
        ("<mediawiki>", "ruwiki-20260101-pages-articles.xml", "ru"),
        ('<mediawiki xml:lang="en">', "simplewiki-20260101-pages-articles.xml", "en"),
        ("<mediawiki>", "ptwiki-20260101-pages-articles.xml", "en"),
        ("<mediawiki>", "20260101.ru/articles.xml", "ru"),
        ("<mediawiki>", "popqa/ruwiki-20260101-pages-articles.xml", "en"),
        ("<mediawiki>", "nq/ruwiki-20260101-pages-articles.xml", "en"),
    ],
)
def test_the_language_is_that_of_the_wikipedia(checkout, head, name, code):
    """Published questions are English."""
    write(checkout, {name: head} | FILES.get(name.partition("/")[0], {}))
    write_profile.init(checkout, None)
    assert composed().language == code


def test_an_encoder_alone_has_nothing_to_read(checkout):
    bert(checkout / "encoder")
    with pytest.raises(LongtailError, match="not used: encoder encoder: there are no texts for it"):
        write_profile.init(checkout, None)


def test_an_empty_folder_is_refused(checkout):
    (checkout / ".hidden").write_text("id\ttext\ttitle\n")
    with pytest.raises(LongtailError, match=r"popQA\.tsv.*psgs_w100\.tsv.*config\.json"):
        write_profile.init(checkout, None)
    gpt(checkout / "gpt2")
    with pytest.raises(LongtailError, match="nothing in it that a run can be made of"):
        write_profile.init(checkout, None)
    assert not Path("conf/profile/data.yaml").exists()


def test_hostile_names_write_only_comments_and_globs(checkout):
    names = [
        label
        for label in hostile.LABELS
        if "/" not in label and "\0" not in label and len(label.encode()) < 200
    ]
    names += ["x\nfetch:\n  root: elsewhere\n#", "\nlms: [evil]", os.fsdecode(b"\xff\xfe")]
    folder = checkout / "user's\nprofile: evil"
    for name in names:
        write(folder / name, FILES["popqa"] | {f"{name}.txt": "nothing known"})
        write(folder / name, {f"again{name}.tsv": FILES["popqa"]["popQA.tsv"]})
    write_profile.init(folder, "hostile", lsr=False, force=False)
    text = Path("conf/profile/hostile.yaml").read_text(encoding="utf-8")
    written = yaml.safe_load(text)
    expected = ("hostile", [], str(folder))
    assert (written["profile"], written["lms"], written["fetch"]["root"]) == expected
    assert not re.search(hostile.STEERING, text)
