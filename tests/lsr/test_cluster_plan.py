"""`longtail plan --device` and `--measure` say how a run scales with workers, and what stops it from scaling."""

import huggingface_hub
import pytest
import yaml

from flows import profiles
from pipelines.errors import LongtailError
from pipelines.lsr import cluster_plan, plan, speed
from pipelines.lsr.cluster_plan import NETWORK, Part


@pytest.fixture
def paper(root, tmp_path, monkeypatch):
    """REPLUG's set-up, without models or corpora here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: 1e9)
    return plan.read(yaml.safe_load(profiles.compose("paper-replug", root)) | {"retrievers": ["contriever"]})


@pytest.mark.parametrize(
    ("part", "seconds"),
    [
        (Part("each does as much, the rest is divided", shared=100.0, each=3.0), {1: 103.0, 4: 28.0}),
        (Part("no more share a step than it has queries", shared=64.0, most=16), {16: 4.0, 64: 4.0}),
        (
            Part("gradients among many are nearly twice their bytes", shared=0.0, summed=NETWORK),
            {1: 0.0, 2: 1.0, 4: 1.5},
        ),
    ],
    ids=lambda value: getattr(value, "label", ""),
)
def test_a_parts_seconds_follow_from_the_number_of_workers(part, seconds):
    assert {n: part.seconds(n) for n in seconds} == seconds


def test_the_hours_of_a_gpu_are_operations_by_half_of_its_stated_speed(paper):
    """REPLUG's 12.5 G tokens by GPT-2 XL in fp32, on an A100 that computes 19.5 T operations a second."""
    (reads,) = (part for part in rows(paper, "a100-80") if part.label == "contriever, gpt2-xl reads")
    length = paper.chunk.tokens + paper.queries.context_tokens + paper.queries.continuation_tokens
    operations = speed.GPT2_XL.operations(length, paper.queries.continuation_tokens / length)
    needed = plan.amounts(paper, plan.documents_by_corpus(paper)[0], plan.queries_to_learn_from(paper))
    assert reads.shared == pytest.approx(needed.lm_tokens * operations / (0.5 * 19.5e12))


def rows(params, device):
    return cluster_plan.parts(params, device and cluster_plan.device(device))[0]


def test_the_table_has_money_and_efficiency_that_falls(paper):
    lines = cluster_plan.forecast(paper, cluster_plan.device("a100-80"), 2.0)
    table = {int(line.split()[0]): line.split() for line in lines if line.strip()[:1].isdigit()}
    assert list(table) == [1, 2, 4, 8, 16, 32, 64]
    one, many = (float(table[n][1]) for n in (1, 64))
    assert one / 64 < many < one
    assert float(table[1][2].replace(",", "")) == pytest.approx(2 * one, rel=0.01)
    efficiencies = [int(row[3].removesuffix("%")) for row in table.values()]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert efficiencies[-1] == pytest.approx(100 * one / 64 / many, abs=1)


@pytest.mark.parametrize(("processes", "device", "trainers"), [
    (4, "a100-80", 4),
    (4, None, 4),
    (None, "a100-80", 20),  # every GPU, as many as a step has queries
    (1000, "a100-80", 20),
    (None, None, 1),
])  # fmt: skip
def test_as_many_workers_train_as_the_params_say(processes, device, trainers, paper):
    paper.lsr = paper.lsr.model_copy(update={"processes": processes, "batch_size": 20})
    most = {row.label: row.most for row in rows(paper, device)}
    assert most["contriever, training"] == trainers
    assert most["contriever, embedding anew"] is None, "the refresh goes to all workers"


def test_memory_that_a_device_lacks_is_said(paper):
    lines = cluster_plan.forecast(paper, cluster_plan.device("t4"), None)
    (training,) = (line for line in lines if "contriever, training" in line)
    assert training.endswith(": more than a worker's 16 GiB")


def test_an_unknown_device_is_refused_with_those_that_are_known():
    with pytest.raises(LongtailError, match=r"no gtx in .*devices.yaml, expected one of t4, v100"):
        cluster_plan.device("gtx")


def test_without_a_device_a_worker_is_one_process_here_whatever_compute_workers_is(paper):
    alone = rows(paper, None)
    paper.compute = paper.compute.model_copy(update={"workers": 8})
    assert rows(paper, None) == alone
