"""Profiles compose to what is committed, and to what params.py allows."""

import re
import shutil
from datetime import UTC, datetime

import pytest
import yaml

from flows import months, profiles
from pipelines.errors import LongtailError
from pipelines.params import params_file


@pytest.fixture(scope="module")
def texts(root) -> dict[str, str]:
    return {name: profiles.compose(name, root) for name in profiles.names(root)}


@pytest.fixture(scope="module")
def composed(texts):
    return {name: params_file.parse(yaml.safe_load(text)) for name, text in texts.items()}


def test_every_profile_is_valid(root, texts, composed):
    assert {"sample", "excerpt", "paper-popqa", "paper-replug", "smoke"} <= set(composed)
    assert (root / "params.yaml").read_text(encoding="utf-8") == texts["sample"], (
        "`longtail init --profile sample` writes it"
    )
    for name, params in composed.items():
        assert params.profile == name
        learns = params.parts.tuned and params.lsr.queries != "lm"
        judged = not params.parts.answered or params.popqa.train_share == 0
        assert learns or judged, (
            f"{name} keeps questions from being judged that nothing learns from"
        )
        links = bool(params.parts.knowledge) and "nq" in params.parts.question_sets
        counted = params.fetch.files.get("c4")
        assert counted or not links, f"{name} takes each everyday word of nq for a name"


def test_the_popqa_papers_set_up(composed):
    """PopQA, sections 4.1, 5.1 and 6.1, and appendix B."""
    params = composed["paper-popqa"]
    assert (params.popqa.source, params.popqa.train_share) == ("published", 0)
    assert params.fetch.files["popqa"] == ["popqa/popQA.tsv"]
    assert params.parts.answered == ["popqa", "entityquestions"]
    assert params.parts.tuned == params.parts.scored == []
    assert params.ways == ["closed_book", "bm25", "dense", "genread"]
    (found,) = (params.retriever[name] for name in params.retrievers)
    expected = ("facebook/contriever-msmarco", "dot", "mean")
    assert (found.path, found.similarity, found.pooling) == expected
    assert [params.lm[name].path for name in params.lms] == [
        *(
            "EleutherAI/gpt-neo-1.3B",
            "EleutherAI/gpt-neo-2.7B",
            "EleutherAI/gpt-j-6b",
            "EleutherAI/gpt-neox-20b",
        ),
        *("facebook/opt-1.3b", "facebook/opt-2.7b", "facebook/opt-6.7b", "facebook/opt-13b"),
    ]
    assert {name for name in params.lms if params.lm[name].dtype == "int8"} == {
        "gpt-neox-20b",
        "opt-13b",
    }
    assert (params.answer.n_shots, params.answer.new_tokens, params.answer.passages) == (15, 15, 1)
    assert params.answer.max_questions >= 22_075
    assert (params.thresholds.search, params.thresholds.splits, params.thresholds.train_share) == (
        "exact",
        100,
        0.75,
    )


def test_the_replug_papers_set_up(composed):
    """REPLUG, sections 3.1, 5, 6.1 and 7.2; LSR's numbers are in tests/plan/test_plan.py."""
    params = composed["paper-replug"]
    assert params.parts.knowledge == params.parts.rules == []
    assert params.parts.scored == ["pile", "wikitext"]
    assert params.parts.question_sets == params.parts.answered == ["mmlu", "nq", "triviaqa"]
    shots = [params.answer.of(name, params.lm["llama-2-13b"]).n_shots for name in ("mmlu", "nq")]
    assert shots == [5, 16]
    expected = (["contriever"], "lm", 0)
    assert (params.parts.tuned, params.lsr.queries, params.lsr.qa_queries) == expected
    retrievers = {name: params.retriever[name] for name in params.retrievers}
    assert list(retrievers) == ["contriever", "bert", "dpr"]
    assert (retrievers["contriever"].path, retrievers["contriever"].pooling) == (
        "facebook/contriever",
        "mean",
    )
    assert (retrievers["bert"].path, retrievers["bert"].pooling) == ("bert-base-uncased", "mean")
    assert retrievers["dpr"].query_path == "facebook/dpr-question_encoder-single-nq-base"
    assert {found.similarity for found in retrievers.values()} == {"dot"}
    assert (params.chunk.tokens, params.corpus["pile"].documents, params.replug.top_k) == (
        128,
        36_000_000,
        10,
    )
    families = {"gpt2": 4, "facebook/opt": 8, "bigscience/bloom": 5, "meta-llama/Llama-2-13b-hf": 1}
    paths = [params.lm[name].path for name in params.lms]
    assert {
        family: sum(path.startswith(family) for path in paths) for family in families
    } == families
    assert len(paths) == 18
    assert params.lms[0] == "gpt2-xl", "the largest open model of table 1 tunes the retriever"


def test_an_unknown_profile_names_those_there_are(root):
    with pytest.raises(LongtailError, match=r"'pepar'.*excerpt.*sample"):
        profiles.compose("pepar", root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"# @package _global_\nprofile: mine\nreplug: {temprature: 1}\n", "unknown key replug.temprature; allowed"),
        (b"# @package _global_\nprofile: mine\nreplug: [\n", "line 4, column 1"),
        (b"# @package _global_\nprofile: mine\nseed: ${sead}\n", "sead"),
        (b"# @package _global_\nprofile: \xe9\n", "can't decode byte 0xe9"),
        (b"profile: mine\n", "expected `# @package _global_` as its first line"),
        (b"# @package _global_\nprofile: excerpt\n", "then `profile: mine`"),
    ],
)  # fmt: skip
def test_a_fault_in_an_own_profile_is_named_in_one_line(root, tmp_path, text, said):
    shutil.copytree(root / "conf", tmp_path / "conf")
    (tmp_path / "conf/profile/mine.yaml").write_bytes(text)
    with pytest.raises(LongtailError, match=re.escape(said)) as error:
        profiles.compose("mine", tmp_path)
    assert str(error.value).startswith("conf/profile/mine.yaml")
    assert "\n" not in str(error.value)


def test_an_experiment_changes_no_other_param(root, texts, tmp_path):
    """With Hydra in .dvc/config, `dvc exp run -S` would go back to the profile `sample`."""
    from dvc.utils.hydra import apply_overrides

    assert "hydra" not in (root / ".dvc/config").read_text(encoding="utf-8")
    path = tmp_path / "params.yaml"
    path.write_text(texts["excerpt"], encoding="utf-8")
    apply_overrides(path, ["answer.n_shots=3"])
    expected = yaml.safe_load(texts["excerpt"])
    expected["answer"]["n_shots"] = 3
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == expected


def test_init_writes_a_profile_from_any_folder(root, texts, tmp_path, monkeypatch, call):
    shutil.copytree(root / "conf", tmp_path / "conf")
    shutil.copy(root / "dvc.yaml", tmp_path)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert not call("init", "--profile", "excerpt")[0]
    assert (tmp_path / "params.yaml").read_text(encoding="utf-8") == texts["excerpt"]


def test_a_month_moves_the_page_views_and_nothing_else(texts, tmp_path):
    """The params have page views by dump and by glob, and a comment that someone wrote."""
    path = tmp_path / "params.yaml"
    before = texts["paper-popqa"].replace(
        "agents: all-agents", "agents: all-agents  # as published"
    )
    before = before.replace("pageviews:\n", "pageviews:\n    - views/2021-10/*.txt\n")
    path.write_text(before, encoding="utf-8")
    for month in ("2021-13", "October", "2999-01", f"{datetime.now(UTC):%Y-%m}"):
        with pytest.raises(LongtailError, match=f"month {month}: expected YYYY-MM up to"):
            months.set_month(month, path)
    assert path.read_text(encoding="utf-8") == before
    assert (
        months.set_month("2022-03", path)
        == "popularity.month was 2021-10, and is 2022-03 from now on"
    )
    lines = zip(before.splitlines(), path.read_text(encoding="utf-8").splitlines(), strict=True)
    assert [
        new.strip(" -").split("/pageview_complete")[-1] for old, new in lines if old != new
    ] == [
        "views/2022-03/*.txt",
        *(
            f"/monthly/2022/2022-03/pageviews-202203-{agent}.bz2"
            for agent in ("user", "spider", "automated")
        ),
        "month: 2022-03",
    ]
    assert months.set_month("2022-03", path) == "popularity.month is 2022-03 already"


def test_a_month_moves_all_files_that_name_it(texts, root, tmp_path):
    """The sample has the files of its second month."""
    path = tmp_path / "params.yaml"
    path.write_text(texts["sample"], encoding="utf-8")
    months.set_month("2021-11", path)
    first = params_file.load_params(root / "params.yaml").fetch
    second = params_file.load_params(path).fetch
    moved = {name for name, globs in second.files.items() if globs != first.files[name]}
    assert moved == {"wikidata", "wikipedia", "redirects", "pageviews"}
    for globs in second.files.values():
        assert all(list((root / second.root).glob(name)) for name in globs)
