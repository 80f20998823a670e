"""`longtail plan --device` and `--measure` say how a run scales with workers, and what stops it from scaling."""

import huggingface_hub
import pytest
import yaml

from flows import profiles
from pipelines.errors import LongtailError
from pipelines.lsr import cluster_plan, plan, speed
from pipelines.lsr.cluster_plan import NETWORK, Part
from pipelines.retrieval.index_plan import GIB


@pytest.fixture
def paper(root, tmp_path, monkeypatch):
    """REPLUG's set-up, without models or corpora here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return plan.read(yaml.safe_load(profiles.compose("paper-replug", root)) | {"retrievers": ["contriever"]})


def table(lines: list[str]) -> dict[int, list[str]]:
    return {int(line.split()[0]): line.split() for line in lines if line.strip()[:1].isdigit()}


def test_shards_are_divided_and_what_each_worker_does_is_not():
    part = Part("scores", shared=100.0, each=3.0)
    assert [part.seconds(n) for n in (1, 4)] == [103.0, 28.0]


def test_no_more_workers_share_a_step_than_it_has_queries():
    part = Part("training", shared=64.0, most=16)
    assert [part.seconds(n) for n in (16, 64)] == [4.0, 4.0]


def test_summing_gradients_costs_nothing_alone_and_nearly_twice_their_bytes_among_many():
    part = Part("training", shared=0.0, summed=NETWORK)
    assert [part.seconds(n) for n in (1, 2, 4)] == [0.0, 1.0, 1.5]


def test_the_hours_of_a_gpu_are_operations_by_half_of_its_stated_speed(paper):
    """REPLUG's 12.5 G tokens by GPT-2 XL in fp32, on an A100 that computes 19.5 T operations a second."""
    gpu = cluster_plan.device("a100-80")
    rows, _ = cluster_plan.parts(paper, gpu)
    (reads,) = (part for part in rows if part.label == "contriever, gpt2-xl reads")
    length = paper.chunk.tokens + paper.queries.context_tokens + paper.queries.continuation_tokens
    operations = speed.GPT2_XL.operations(length, paper.queries.continuation_tokens / length)
    needed = plan.amounts(paper, plan.documents_by_corpus(paper)[0], plan.queries_to_learn_from(paper))
    assert reads.shared == pytest.approx(needed.lm_tokens * operations / (0.5 * 19.5e12))


def test_the_table_has_money_and_efficiency_that_falls(paper):
    gpu = cluster_plan.device("a100-80")
    rows = table(cluster_plan.forecast(paper, gpu, 2.0))
    assert list(rows) == [1, 2, 4, 8, 16, 32, 64]
    one, many = (float(rows[n][1]) for n in (1, 64))
    assert one / 64 < many < one
    assert float(rows[1][2].replace(",", "")) == pytest.approx(2 * one, rel=0.01)
    efficiencies = [int(row[3].removesuffix("%")) for row in rows.values()]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert efficiencies[-1] == pytest.approx(100 * one / 64 / many, abs=1)


@pytest.mark.parametrize(("processes", "device", "trainers"), [
    (4, "a100-80", 4),
    (4, None, 4),
    (None, "a100-80", 20),  # every GPU, as many as a step has queries
    (1000, "a100-80", 20),
    (None, None, 1),
])  # fmt: skip
def test_as_many_workers_train_as_the_params_say(processes, device, trainers, paper, monkeypatch):
    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: 1e9)
    paper.lsr = paper.lsr.model_copy(update={"processes": processes, "batch_size": 20})
    rows, _ = cluster_plan.parts(paper, device and cluster_plan.device(device))
    most = {row.label: row.most for row in rows}
    assert most["contriever, training"] == trainers
    assert most["contriever, embedding anew"] is None, "the refresh goes to all workers"


def test_memory_that_a_device_lacks_is_said(paper):
    lines = cluster_plan.forecast(paper, cluster_plan.device("t4"), None)
    (training,) = (line for line in lines if "contriever, training" in line)
    assert training.endswith(": more than a worker's 16 GiB")


def test_bf16_is_faster_where_a_device_has_it(paper):
    gpu = cluster_plan.device("h100")
    paper.lm["gpt2-xl"] = paper.lm["gpt2-xl"].model_copy(update={"dtype": "bf16"})
    half, _ = cluster_plan.parts(paper, gpu)
    paper.lm["gpt2-xl"] = paper.lm["gpt2-xl"].model_copy(update={"dtype": "fp32"})
    full, _ = cluster_plan.parts(paper, gpu)
    of = [next(part.shared for part in rows if part.label.endswith("gpt2-xl reads")) for rows in (full, half)]
    assert of[0] / of[1] == pytest.approx(989 / 67)


def test_every_device_has_memory_and_both_speeds():
    for gpu in cluster_plan.devices().values():
        assert 10 * GIB < gpu.memory < 200 * GIB
        assert 5e12 < gpu.fp32 < gpu.half < 1e15


def test_an_unknown_device_is_refused_with_those_that_are_known():
    with pytest.raises(LongtailError, match=r"no gtx in .*devices.yaml, expected one of t4, v100"):
        cluster_plan.device("gtx")


def test_without_a_device_a_worker_is_one_process_here(paper, monkeypatch):
    """Whatever compute.workers is."""
    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: 1e9)
    several = paper.compute.model_copy(update={"workers": 8})
    rows = [cluster_plan.parts(paper, None)[0]]
    paper.compute = several
    rows.append(cluster_plan.parts(paper, None)[0])
    assert rows[0] == rows[1]
