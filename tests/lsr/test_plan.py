"""`longtail plan` counts what LSR will take, from the params alone or from the corpora and models that are there."""

import copy
import json

import huggingface_hub
import pytest
import yaml

from flows import profiles
from pipelines.lsr import plan, speed, workload


@pytest.fixture(autouse=True)
def quick_measurements(monkeypatch):
    monkeypatch.setattr(speed, "REPETITIONS", 2)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def forecast(values: dict) -> list[str]:
    return plan.forecast(plan.read(values))


def starting(lines: list[str], *begins: str) -> list[str]:
    return [line for line in lines if line.startswith(begins)]


@pytest.fixture
def composed(root, workplace):
    """A function that gives a profile's params; the test works in a folder without models or corpora."""
    return lambda profile: yaml.safe_load(profiles.compose(profile, root))


@pytest.fixture
def paper(composed) -> dict:
    """REPLUG's set-up, with the retriever that is tuned alone."""
    return composed("paper-replug") | {"retrievers": ["contriever"]}


def test_the_papers_numbers(paper):
    lsr = paper["lsr"]
    of_the_paper = {"steps": 25_000, "batch_size": 64, "top_k": 20, "refresh_steps": 3000, "lm_queries": 800_000}
    of_the_paper |= {"gamma": 0.1, "beta": 0.1, "learning_rate": 2e-5, "warmup": 0.1, "queries": "lm"}
    assert {name: lsr[name] for name in of_the_paper} == of_the_paper
    made = plan.amounts(plan.read(paper), {"wikipedia": 21_000_000, "pile": 36_000_000, "wikitext": 0}, 800_000)
    judged = 10 * lsr["validation_queries"] * 10
    assert (made.queries, made.refreshes) == (800_000, 9)
    assert made.pairs == 25_000 * 64 * 20 + 800_000 + judged
    assert made.lm_tokens == 25_000 * 64 * 20 * 384 + 800_000 * 256 + judged * 384
    assert made.embedded == 36_000_000 * 128, "no question is learnt from, so Wikipedia stays as it is"
    assert made.trained == 25_000 * 64 * (20 + 1) * 128
    assert made.indexed == 2 * 57_000_000 * 128
    assert made.held == 3000 * 64 * 20
    few = plan.amounts(plan.read(paper), {"wikipedia": 0, "pile": 1000}, 500)
    assert few.pairs == 9 * 500 * 20 + 500 + judged, "no query counts twice in a round"


def test_without_models_the_plan_is_made_of_shapes_and_says_so(paper, tmp_path):
    lines = forecast(paper)
    assert "wikipedia 21,000,000 (a guess: no corpus is there yet), pile 36,000,000 (as the params say)" in lines[1]
    (read,) = starting(lines, "gpt2-xl reads")
    assert "12.5 G" in read
    assert "from GPT-2 XL's shape" in read
    assert starting(lines, "together")[1].startswith("together, side by side")
    assert starting(lines, "disk: 175.1 GB of embeddings before and after, 55.3 while it trains")
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 1000}
    (tmp_path / "small").mkdir()
    (tmp_path / "small/config.json").write_text(json.dumps(shape))
    paper["lm"]["gpt2-xl"]["path"] = str(tmp_path / "small")
    (read,) = starting(forecast(paper), "gpt2-xl reads")
    assert "from the shape of small" in read


def test_each_retriever_has_rows_of_its_own(paper):
    tuned = starting(forecast(paper), "indexes, before and after", "embedding anew", "training")
    lines = forecast(paper | {"retrievers": ["contriever", "bert"]})
    of_contriever = starting(lines, "contriever, ")
    assert of_contriever[0].startswith("contriever, indexes, before and")
    assert len(of_contriever) == len(tuned) + 1 + 4, "rows, memory and disk"
    (index,) = starting(lines, "bert, indexes ")
    assert "7.3 G" in index, "57 million documents of 128 tokens, once"
    assert starting(lines, "bert, disk: 87.6 GB of embeddings")


def test_without_lsr_the_plan_is_of_answers_indexes_and_weights(composed):
    values = composed("paper-popqa")
    lines, lms = forecast(values), plan.read(values).lms
    assert lines[0] == "profile paper-popqa: no retriever is tuned"
    labels = [line.partition("  ")[0] for line in lines[lines.index("") + 2 :]]
    assert labels[: labels.index("")] == ["indexes", *(f"{name}, answers" for name in lms), "together"]
    assert starting(lines, "disk: 32.3 GB of embeddings")
    unknown = ", ".join([*lms, "retriever contriever-msmarco"])
    assert f"download: 0.0 GB of weights, and those of {unknown}" in lines
    values["answer"]["max_questions"] = 200
    assert not starting(forecast(values), "thresholds: ")
    values["answer"]["max_questions"] = 60
    (warning,) = starting(forecast(values), "thresholds: ")
    assert "a relation with 20 answered questions" in warning
    assert warning.endswith("of 60 (answer.max_questions), PopQA's largest relation has about 8")
    values |= {"parts": composed("predictions")["parts"], "lms": [], "retrievers": []}
    assert forecast(values)[1] == "documents: none"


def test_without_corpora_their_sources_say_how_many_documents_there_may_be(composed, settings):
    with open("a.xml.bz2", "wb") as dump:
        dump.write(bytes(40 * workload.DOCUMENT))
    values = copy.deepcopy(settings)
    files = {"wikipedia": ["*.bz2", "a.*"], "pile": ["b.*"]}
    values["fetch"] |= {"source": "files", "root": ".", "files": files, "pages": None}
    for corpus in values["corpus"].values():
        corpus["documents"] = None
    guess, unknown = "a guess: no corpus is there yet", "unknown: no corpus is there yet"
    assert forecast(values)[1] == f"documents: wikipedia 40 ({guess}), pile 0 ({unknown}), wikitext 0 ({unknown})"
    values["fetch"]["files"] = {}
    assert starting(forecast(values), "memory: texts of a round")
    values["fetch"]["source"] = "world"
    values["world"] |= {"entities": 20, "pile_documents": 3}
    assert forecast(values)[1] == f"documents: wikipedia 20 ({guess}), pile 60 ({guess}), wikitext 0 ({unknown})"


def test_stages_and_rounds_side_by_side_take_as_long_as_their_share_or_the_longest_of_them():
    assert speed.together([30.0, 10.0, 20.0], 2) == 30
    assert speed.together([30.0, 10.0, 40.0, 40.0], 2) == 60
    assert speed.together([], 2) == 0
    assert plan._side_by_side(5.0, 2.0, 10.0, 100.0, 2) == 5 + 5 + 100 + 1
    assert plan._side_by_side(5.0, 30.0, 300.0, 15.0, 3) == 5 + 30 + 300
    assert plan._side_by_side(5.0, 2.0, 10.0, 100.0, 1) == 5 + 10 + 100 + 2, "one round has nothing beside it"


def test_answers_take_less_time_with_more_workers_but_not_less_than_the_longest_method(composed, monkeypatch):
    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: threads * 5e10)
    monkeypatch.setattr(plan.os, "cpu_count", lambda: 16)
    values = composed("sample")
    values["parts"] |= {"tuned": [], "scored": [], "benchmarks": []}
    values["answer"]["n_shots"] = 5

    def seconds(workers: int) -> float:
        values["compute"]["workers"] = workers
        params = plan.read(values)
        (row,) = plan.lm_rows(params, plan.workload.sizes(params))
        return row.tokens / row.rate.tokens

    assert seconds(2) == pytest.approx(seconds(1) / 2)
    stages = plan.workload.answers(plan.read(values)).stages
    assert seconds(16) == pytest.approx(seconds(1) * max(stages) / sum(stages))


def test_what_these_params_made_is_counted_and_measured(project):
    def measured(settings, **others) -> list[str]:
        """The lines' ends, where dvc.lock says that three stages ran with these params, some of them changed."""
        keys = {"base_retriever@dense": "retriever.dense", "base_lm@tiny": "lm.tiny", "chunk@pile": "seed"}
        made = {key: copy.deepcopy(speed._dotted(settings, key)) for key in keys.values()}
        made["lm.tiny"] |= others
        stages = {name: {"params": {"params.yaml": {key: made[key]}}} for name, key in keys.items()}
        (project.folder / "dvc.lock").write_text(yaml.safe_dump({"stages": stages}))
        return [line.rpartition(" ")[2] for line in forecast(settings)]

    (project.folder / "params.yaml").write_text(yaml.safe_dump(project.settings))
    assert measured(project.settings).count("measured") == 2
    assert "pile 30 (counted)" in forecast(project.settings)[1]
    assert measured(project.settings, dtype="bf16").count("measured") == 1


@pytest.mark.usefixtures("workplace")
def test_a_corpus_of_other_files_is_not_these_params(tmp_path):
    fetched = {"params": {"params.yaml": {"fetch.root": "mine"}}, "outs": [{"path": "data/raw/wikipedia"}]}
    cut = {"deps": [{"path": "data/raw/wikipedia/psgs.tsv"}], "outs": [{"path": "data/corpus/wikipedia"}]}
    index = {"deps": [{"path": "data/corpus/wikipedia/docs.parquet"}], "outs": [{"path": "data/index"}]}
    stages = {"index": index, "chunk@wikipedia": cut, "fetch": fetched, "other": {"deps": [{"path": "src.py"}]}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"stages": stages}))
    assert speed.made_by({"fetch": {"root": "mine"}}) == stages.keys()
    assert speed.made_by({"fetch": {"root": "yours"}}) == {"other"}


def test_a_servers_scores_have_a_price(paper):
    server = {"url": "http://127.0.0.1:9/v1", "max_tokens": 2048, "tokenizer": None, "batch_size": 16, "extra": {}}
    server |= {"concurrency": 8, "logprobs": 5, "requests_per_minute": None, "tokens_per_minute": 600_000}
    server |= {"prompt_price": 0.002, "completion_price": 0.002, "max_cost": None}
    paper["lm"]["gpt2-xl"] |= {"source": "http", "http": server}
    lines = forecast(paper)
    assert lines[-1].startswith("cost: 24,993.28 ")
    assert "10 k" in starting(lines, "gpt2-xl reads")[0], "tokens a second"
