"""Profiles compose to what is committed, and to what params.py allows."""

from __future__ import annotations

import re
import shutil
import sys
from datetime import UTC, datetime

import pytest
import yaml
from dvc.repo import Repo

from flows import cli, graph, months, profiles
from pipelines import params_file
from pipelines.errors import LongtailError


@pytest.fixture(scope="module")
def texts(root) -> dict[str, str]:
    return {name: profiles.compose(name, root) for name in profiles.names(root)}


@pytest.fixture(scope="module")
def composed(texts):
    return {name: params_file.parse(yaml.safe_load(text)) for name, text in texts.items()}


def test_every_profile_is_valid_and_params_yaml_is_the_sample_to_the_byte(root, texts, composed):
    assert {"sample", "excerpt", "paper-popqa", "paper-replug", "tiny"} <= set(composed)
    assert {name: params.profile for name, params in composed.items()} == {name: name for name in texts}
    assert (root / "params.yaml").read_text(encoding="utf-8") == texts["sample"], "`longtail profile sample` writes it"


def test_no_profile_keeps_questions_from_being_judged_that_nothing_learns_from(composed):
    for name, params in composed.items():
        learns = params.parts.tuned and params.lsr.queries != "lm"
        assert learns or not params.parts.answered or params.popqa.train_share == 0, name


def test_the_popqa_papers_set_up(composed):
    """PopQA, sections 4.1, 5.1 and 6.1, and appendix B."""
    params = composed["paper-popqa"]
    assert (params.popqa.source, params.popqa.train_share) == ("published", 0)
    assert params.fetch.files["popqa"] == ["popqa/popQA.tsv"]
    assert params.parts.answered == ["popqa", "entityquestions"]
    assert params.parts.tuned == params.parts.ensembles == params.parts.benchmarks == params.parts.scored == []
    (retriever,) = (params.retriever[name] for name in params.retrievers)
    assert (retriever.path, retriever.similarity) == ("facebook/contriever-msmarco", "dot")
    assert retriever.pooling == "mean"
    assert [params.lm[name].path for name in params.lms] == [
        *("EleutherAI/gpt-neo-1.3B", "EleutherAI/gpt-neo-2.7B", "EleutherAI/gpt-j-6b", "EleutherAI/gpt-neox-20b"),
        *("facebook/opt-1.3b", "facebook/opt-2.7b", "facebook/opt-6.7b", "facebook/opt-13b"),
    ]
    assert {name for name in params.lms if params.lm[name].dtype == "int8"} == {"gpt-neox-20b", "opt-13b"}
    assert (params.answer.n_shots, params.answer.new_tokens, params.answer.passages) == (15, 15, 1)
    assert params.answer.max_questions >= 22_075
    assert (params.thresholds.search, params.thresholds.splits, params.thresholds.train_share) == ("exact", 100, 0.75)


def test_the_replug_papers_set_up(composed):
    """REPLUG, sections 3.1, 5, 6.1 and 7.2; LSR's numbers are in tests/lsr/test_plan.py."""
    params = composed["paper-replug"]
    assert params.parts.question_sets == params.parts.knowledge == params.parts.rules == []
    assert params.parts.scored == ["pile", "wikitext"]
    assert params.parts.benchmarks == ["mmlu", "nq", "triviaqa"]
    assert (params.parts.tuned, params.lsr.queries, params.lsr.qa_queries) == (["contriever"], "lm", 0)
    retrievers = {name: params.retriever[name] for name in params.retrievers}
    assert list(retrievers) == ["contriever", "bert", "dpr"]
    assert (retrievers["contriever"].path, retrievers["contriever"].similarity) == ("facebook/contriever", "cosine")
    assert (retrievers["bert"].path, retrievers["bert"].pooling) == ("bert-base-uncased", "cls")
    assert (retrievers["dpr"].query_path, retrievers["dpr"].similarity) == (
        *("facebook/dpr-question_encoder-single-nq-base", "dot"),
    )
    assert (params.chunk.tokens, params.corpus["pile"].documents, params.replug.top_k) == (128, 36_000_000, 10)
    families = {"gpt2": 4, "facebook/opt": 8, "bigscience/bloom": 5}
    paths = [params.lm[name].path for name in params.lms]
    assert {family: sum(path.startswith(family) for path in paths) for family in families} == families
    assert len(paths) == 17
    assert params.lms[0] == "gpt2-xl", "the largest open model of table 1 tunes the retriever"


@pytest.mark.parametrize("name", ["paper-popqa", "paper-replug"])
def test_the_papers_profiles_run_only_what_the_papers_need(root, texts, tmp_path, monkeypatch, name):
    shutil.copy(root / "dvc.yaml", tmp_path)
    (tmp_path / "params.yaml").write_text(texts[name], encoding="utf-8")
    Repo.init(str(tmp_path), no_scm=True).close()
    monkeypatch.chdir(tmp_path)
    names = [stage.name for stage in graph.read(tmp_path)[0]]
    kinds = {name.partition("@")[0] for name in names}
    popqa = {"questions", "answer", "answer_dense", "tune_thresholds", "triples"}
    replug = {"train_lsr", "index_lsr", "score_lm", "evaluate_lm", "attribute", "evaluate_tasks"}
    needed, not_needed = (popqa, replug) if name == "paper-popqa" else (replug, popqa)
    assert needed <= kinds
    assert not kinds & {*not_needed, "answer_replug", "answer_replug_lsr", "answer_lsr", "evaluate_retrieval"}
    if name == "paper-popqa":
        assert sum(stage.startswith(("answer@", "answer_dense@")) for stage in names) == 2 * 8 * 4


def test_an_unknown_profile_names_those_there_are(root):
    with pytest.raises(LongtailError, match=r"'pepar'.*excerpt.*sample"):
        profiles.compose("pepar", root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            b"# @package _global_\nprofile: mine\nreplug: {temprature: 1.0}\n",
            "unknown key replug.temprature; allowed",
        ),
        (b"# @package _global_\nprofile: mine\nreplug: [\n", "expected the node content"),
        (b"# @package _global_\nprofile: mine\nseed: ${sead}\n", "sead"),
        (b"# @package _global_\nprofile: \xe9\n", "can't decode"),
        (b"profile: mine\n", "expected `# @package _global_` as its first line"),
        (b"# @package _global_\nprofile: excerpt\n", "then `profile: mine`"),
    ],
)
def test_what_is_wrong_with_a_profile_of_ones_own_is_one_line_that_names_it(root, tmp_path, text, said):
    shutil.copytree(root / "conf", tmp_path / "conf")
    (tmp_path / "conf/profile/mine.yaml").write_bytes(text)
    with pytest.raises(LongtailError, match=re.escape(said)) as error:
        profiles.compose("mine", tmp_path)
    assert str(error.value).startswith("conf/profile/mine.yaml")
    assert "\n" not in str(error.value)


def test_dvc_composes_the_same_bytes_as_the_command(root, texts, tmp_path, monkeypatch):
    """`dvc exp run -S profile=…` and `longtail profile` must not fight over params.yaml."""
    from dvc.utils.hydra import compose_and_dump

    compose_and_dump(tmp_path / "of_dvc.yaml", str(root / "conf"), None, "config", str(tmp_path), ["profile=excerpt"])
    assert (tmp_path / "of_dvc.yaml").read_text(encoding="utf-8") == texts["excerpt"]
    shutil.copytree(root / "conf", tmp_path / "conf")
    shutil.copy(root / "dvc.yaml", tmp_path)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(sys, "argv", ["longtail", "profile", "excerpt"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert (tmp_path / "params.yaml").read_text(encoding="utf-8") == texts["excerpt"]


@pytest.fixture
def given(texts, tmp_path):
    """A params.yaml with page views by dump and by glob, and a comment that someone wrote."""
    text = texts["paper-popqa"].replace("agents: all-agents", "agents: all-agents  # as published")
    path = tmp_path / "params.yaml"
    path.write_text(text.replace("pageviews:\n", "pageviews:\n    - views/2021-10/*.txt\n"), encoding="utf-8")
    return path


def test_a_month_moves_the_page_views_and_nothing_else(given):
    before = given.read_text(encoding="utf-8")
    said = months.set_month("2022-03", given)
    assert said == (
        "popularity.month was 2021-10, and is 2022-03 from now on; https://dumps.wikimedia.org/wikidatawiki/entities/"
        "20261109/wikidata-20261109-all.json.gz stays, with `latest` in place of its date it would be the month's dump"
    )
    changed = [
        (old, new)
        for old, new in zip(before.splitlines(), given.read_text(encoding="utf-8").splitlines(), strict=True)
        if old != new
    ]
    assert [new.strip(" -").split("/pageview_complete")[-1] for _, new in changed] == [
        "views/2022-03/*.txt",
        "/monthly/2022/2022-03/pageviews-202203-user.bz2",
        "/monthly/2022/2022-03/pageviews-202203-spider.bz2",
        "/monthly/2022/2022-03/pageviews-202203-automated.bz2",
        "month: 2022-03",
        "month: 2022-03",
    ]
    assert months.set_month("2022-03", given) == "popularity.month is 2022-03 already"


@pytest.mark.parametrize("month", ["2021-13", "October", "2999-01", f"{datetime.now(UTC):%Y-%m}"])
def test_a_month_that_is_not_over_is_refused(given, month):
    before = given.read_text(encoding="utf-8")
    with pytest.raises(LongtailError, match=f"month {month}: expected YYYY-MM up to"):
        months.set_month(month, given)
    assert given.read_text(encoding="utf-8") == before
