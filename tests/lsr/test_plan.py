"""`longtail plan` counts what LSR will take, from the params or from what is there, on this machine or on others."""

import copy
import gzip
import json
import shutil

import huggingface_hub
import pytest
import tiny_models
import yaml
from transformers import AutoModel, AutoModelForCausalLM

from flows import profiles
from pipelines.lsr import cluster_plan, plan, speed, workload
from pipelines.lsr.cluster_plan import NETWORK, Part


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
    values = composed("paper-replug") | {"retrievers": ["contriever"]}
    values["ways"] |= {"dense": ["contriever"], "replug": ["contriever"]}
    return values


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
    values |= {name: composed("predictions")[name] for name in ("parts", "ways", "lms", "retrievers")}
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


def test_stages_side_by_side_take_as_long_as_their_share_or_the_longest_of_them():
    assert speed.together([30.0, 10.0, 20.0], 2) == 30
    assert speed.together([30.0, 10.0, 40.0, 40.0], 2) == 60
    assert speed.together([], 2) == 0


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


@pytest.fixture
def planned(paper, monkeypatch):
    """The same, as the plan reads it, on a machine of a known speed."""
    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: 1e9)
    return plan.read(paper)


def test_a_parts_seconds_follow_from_the_number_of_workers():
    for part, seconds in (
        (Part("each does as much, the rest is divided", shared=100.0, each=3.0), {1: 103.0, 4: 28.0}),
        (Part("no more share a step than it has queries", shared=64.0, most=16), {16: 4.0, 64: 4.0}),
        (Part("sums of gradients are nearly twice their bytes", shared=0.0, summed=NETWORK), {1: 0.0, 2: 1.0, 4: 1.5}),
    ):
        assert {n: part.seconds(n) for n in seconds} == seconds


def test_the_hours_of_a_gpu_are_operations_by_half_of_its_stated_speed(planned):
    """REPLUG's 12.5 G tokens by GPT-2 XL in fp32, on an A100 that computes 19.5 T operations a second."""
    (reads,) = (part for part in rows(planned, "a100-80") if part.label == "contriever, gpt2-xl reads")
    length = planned.chunk.tokens + planned.queries.context_tokens + planned.queries.continuation_tokens
    operations = speed.GPT2_XL.operations(length, planned.queries.continuation_tokens / length)
    needed = plan.amounts(planned, plan.documents_by_corpus(planned)[0], plan.queries_to_learn_from(planned))
    assert reads.shared == pytest.approx(needed.lm_tokens * operations / (0.5 * 19.5e12))


def rows(params, device):
    return cluster_plan.parts(params, device and cluster_plan.device(device))[0]


def test_the_table_has_money_and_efficiency_that_falls(planned):
    lines = cluster_plan.forecast(planned, cluster_plan.device("a100-80"), 2.0)
    table = {int(line.split()[0]): line.split() for line in lines if line.strip()[:1].isdigit()}
    assert list(table) == [1, 2, 4, 8, 16, 32, 64]
    one, many = (float(table[n][1]) for n in (1, 64))
    assert one / 64 < many < one
    assert float(table[1][2].replace(",", "")) == pytest.approx(2 * one, rel=0.01)
    efficiencies = [int(row[3].removesuffix("%")) for row in table.values()]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert efficiencies[-1] == pytest.approx(100 * one / 64 / many, abs=1)


@pytest.mark.parametrize("device", ["a100-80", None])
def test_one_worker_trains_and_the_refresh_goes_to_all(device, planned):
    most = {row.label: row.most for row in rows(planned, device)}
    assert most["contriever, training"] == 1
    assert most["contriever, embedding anew"] is None


def test_memory_that_a_device_lacks_is_said(planned):
    lines = cluster_plan.forecast(planned, cluster_plan.device("t4"), None)
    (training,) = (line for line in lines if "contriever, training" in line)
    assert training.endswith(": more than a worker's 16 GiB")


def test_without_a_device_a_worker_is_one_process_here_whatever_compute_workers_is(planned):
    alone = rows(planned, None)
    planned.compute = planned.compute.model_copy(update={"workers": 8})
    assert rows(planned, None) == alone


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def params(composed):
    """A function that gives a profile's params as the plan reads them."""
    return lambda profile: plan.read(composed(profile))


def test_popqas_prompts_are_questions_times_methods_with_all_demonstrations(params):
    (answers,) = workload.readings(params("paper-popqa"))
    asked = 2 * 25_000
    closed_book, genread = 16 * 24, (24 + 150) + 15 + 16 * (24 + 150)
    with_a_passage = 16 * (24 + 128)  # BM25, Contriever
    assert answers.prompts == asked * 5, "GenRead asks twice"
    assert answers.tokens == asked * (closed_book + genread + 2 * with_a_passage + 4 * 15)


def test_a_local_model_reads_demonstrations_before_several_documents_once(params):
    popqa = params("paper-popqa")
    popqa.parts = popqa.parts.model_copy(update={"answered": ["popqa"]})
    popqa.ways = popqa.ways.model_copy(update={"replug": popqa.retrievers})
    popqa.answer = popqa.answer.model_copy(update={"max_questions": 1})
    stages = workload.answers(popqa).stages
    closed_book, genread, bm25, dense, replug = stages
    assert closed_book == 16 * 24 + 15
    assert genread == 2 * (24 + 150) + 15, "all questions share its demonstrations"
    assert bm25 == dense == 16 * (24 + 128) + 15
    assert replug == 15 * (24 + 128) + 10 * (24 + 128 + 15)
    assert workload.answers(popqa).tokens > sum(stages), "a server counts each prompt whole"


def test_replugs_scores_are_of_each_document_of_each_retriever(params):
    scores, benchmarks = workload.readings(params("paper-replug"))
    documents = 6 * 10  # BM25's, Contriever's, BERT's, DPR's, LSR's and random ones
    with_one = 10_000 * (1 + documents) + 1_000 * 4 * 10
    controls = 10_000 * 3  # a longer context, and ten documents of Contriever's and of LSR's in one prompt
    assert scores.prompts == 2 * (with_one + controls)
    assert scores.tokens == 2 * (with_one * 3 + 10_000 * (3 + 2 * 12)) * 128
    assert benchmarks.prompts == (14_042 + 2 * 20_000) * (1 + 4 * 10)


def test_passages_of_dprs_layout_are_documents_and_counted_where_they_are_few(tmp_path, monkeypatch):
    (folder := tmp_path / "sources").mkdir()
    rows = "id\ttext\ttitle\n" + "".join(f"{i}\tA text.\tVelm\n" for i in range(100))
    (folder / "psgs_w100.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    (folder / "plain.tsv").write_text(rows)
    assert workload.documents_in(folder.iterdir()) == (200, True)
    monkeypatch.setattr(workload, "COUNTED", 0)
    (folder / "plain.tsv").write_bytes(bytes(6000 * workload.PASSAGE))
    (folder / "psgs_w100.tsv.gz").write_bytes(bytes(3000 * workload.PASSAGE))
    assert workload.documents_in(folder.iterdir()) == (3000 + 2400, False)
    (folder / "dump.xml.bz2").write_bytes(bytes(40 * workload.DOCUMENT))
    assert workload.documents_in([folder / "dump.xml.bz2"]) == (40, False)


def test_sizes_are_those_of_the_models_and_what_the_hub_has_is_to_be_downloaded(params, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub := tmp_path / "hub"))
    here, there = tiny_models.language_model(tmp_path / "here"), tiny_models.encoder(tmp_path / "there")
    (snapshot := hub / "models--some--encoder/snapshots" / COMMIT).mkdir(parents=True)
    shutil.copy(there / "config.json", snapshot)
    chosen = params("paper-popqa")
    lm, (name,) = chosen.lm[chosen.lms[0]], chosen.retrievers
    chosen.lm = {model: lm.model_copy(update={"path": path}) for model, path in (("here", str(here)), ("away", "a/b"))}
    chosen.lm["served"] = params("paper-popqa").lm["davinci"]
    chosen.lms = list(chosen.lm)
    chosen.retriever = {name: chosen.retriever[name].model_copy(update={"path": "some/encoder", "revision": COMMIT})}
    sizes = workload.sizes(chosen)
    assert list(sizes) == ["here", "away", f"retriever {name}"]
    assert sizes["here"] == (AutoModelForCausalLM.from_pretrained(here).num_parameters(), 0, "here")
    assert sizes["away"] == (None, None, workload.UNREACHABLE)
    assert sizes[f"retriever {name}"].where == workload.UNREACHABLE, "the Hub is not asked again"
    chosen.lms = ["here"]
    parameters = AutoModel.from_pretrained(there, add_pooling_layer=True).num_parameters()
    assert workload.sizes(chosen)[f"retriever {name}"] == (parameters, 4 * parameters, "on the Hub")


def test_a_run_without_answers_asks_nothing_and_a_model_that_is_trained_has_the_size_of_its_shape(params):
    sample = params("sample")
    sample.parts = sample.parts.model_copy(update={"answered": [], "scored": [], "benchmarks": []})
    assert workload.readings(sample) == []
    assert workload.sizes(sample)["tiny"] == (4 * (4 * 128**2 + 2 * 128 * 256), 0, "trained here")
