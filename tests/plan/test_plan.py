"""`longtail plan` says what a run will take, by the profile alone and by what is at hand."""

import json
import re
import shutil
import socket
from pathlib import Path

import huggingface_hub
import pytest
import tiny_models
import torch
from profile_values import values_of
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from flows import profiles
from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.plan import plan, plan_lines, speed, token_counts
from pipelines.sources.named_files import is_url

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SPEED = 1e9  # of this machine's matrix products, which tests do not measure


@pytest.fixture(autouse=True)
def known_machine(monkeypatch, workplace):
    """Two cores of a known speed, without models, corpora or a network."""

    def no_network(*_, **__):
        raise AssertionError("the plan asked the network")

    monkeypatch.setattr(speed, "matrix_products", lambda threads, half: SPEED)
    monkeypatch.setattr(plan.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(socket.socket, "connect", no_network)


@pytest.fixture
def params():
    """A function that gives a profile's params."""
    return lambda profile: params_file.parse(values_of(profile))


def lines_of(params: Params) -> list[str]:
    return list(plan_lines.plan_lines(plan.plan_run(params)))


# Least and most hours that each profile's plan may have, on two cores or one H200. README says an
# hour of `laptop`.
HOURS = {
    "sample": (0.02, 0.2),
    "smoke": (0, 0.02),
    "wikipedia": (0.02, 2),
    "pile": (0.02, 2),
    "excerpt": (0.02, 2),
    "laptop": (0.3, 1.5),
    "paper-popqa": (17, 20),
    "paper-replug": (300, 400),
    "monthly": (0, 0),
    "predictions": (0, 0),
    "paper-popqa-rebuilt": (0, 0),
}


@pytest.mark.parametrize("profile", profiles.names())
def test_each_profile_has_hours_before_anything_is_fetched(params, root, profile, monkeypatch):
    """The sample's models lie in the project; other profiles have the sizes of theirs."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(speed, "matrix_products", lambda threads, half: 1.5e11 * threads)
    planned = plan.plan_run(params(profile))
    assert all(row.hours is not None for row in planned.work)
    assert all(planned.documents.values())
    least, most = HOURS[profile]
    assert least <= planned.hours <= most
    if profile in ("paper-popqa", "paper-replug"):
        readme = (root / "README.md").read_text(encoding="utf-8")
        comments = (root / f"conf/profile/{profile}.yaml").read_text(encoding="utf-8")
        for text, before in ((readme, f"`{profile}` .* "), (comments, "and ")):
            stated = re.search(rf"{before}(\d+) hours on", text)
            assert int(stated[1]) == round(planned.hours)


@pytest.mark.parametrize("profile", profiles.names())
def test_each_profile_has_the_sizes_of_its_downloads(params, root, profile):
    """README and the profiles' comments say the sums."""
    files = params(profile).fetch.files
    downloaded = {name for name, entries in files.items() if any(map(is_url, entries))}
    sizes = plan.count_source_bytes(params(profile), None)
    assert {name for name, size in sizes.items() if size} == downloaded
    stated = re.compile(r"(\d+) GB (?:of files|to download)|download of about (\d+) GB")
    texts = re.findall(rf"`{profile}` .*", (root / "README.md").read_text(encoding="utf-8"))
    texts.append((root / f"conf/profile/{profile}.yaml").read_text(encoding="utf-8"))
    if profile in ("monthly", "paper-popqa"):
        found = [float(max(match)) for text in texts for match in stated.findall(text)]
        assert found == pytest.approx([sum(sizes.values()) / 1e9] * len(found), rel=0.02)
        assert found


def test_the_disk_has_all_copies(params, tmp_path):
    """A manifest says the sizes once a run has fetched the sources."""
    planned = plan.plan_run(params("monthly"))
    expected = {"wikidata": 150e9, "redirects": 2.2e9, "pageviews": 6e9, "embeddings": 0}
    assert planned.space == expected
    assert (planned.disk_bytes, planned.remote_bytes) == (3 * 158.2e9, 158.2e9)
    assert "      474.60  on this machine, in all copies" in plan_lines.plan_lines(planned)
    linked = plan.plan_run(params("monthly"), is_linked=True)
    assert linked.disk_bytes == linked.remote_bytes == 158.2e9

    (tmp_path / "raw").mkdir()
    entries = [{"dataset": "redirects", "bytes": size} for size in (1000, 200)]
    (tmp_path / "raw/manifest.json").write_text(json.dumps(entries))
    assert plan.plan_run(params("monthly"), tmp_path).space["redirects"] == 1200

    sample = plan.plan_run(params("sample"), tmp_path)
    assert sample.disk_bytes == 2 * sample.remote_bytes > 0, "files are not in .longtail/downloads"
    unknown = f"        0.00  wikidata: {plan_lines.UNKNOWN_SIZE}"
    assert unknown in plan_lines.plan_lines(sample)


def test_what_nothing_at_hand_tells_is_unknown():
    values = values_of("paper-popqa")
    del values["plan"]
    planned = plan.plan_run(params_file.parse(values))
    assert all(row.hours is None for row in planned.work)
    assert planned.hours == planned.disk_bytes == 0
    lines = list(plan_lines.plan_lines(planned))
    assert lines[1] == f"wikipedia: {plan_lines.UNKNOWN_CORPUS}"
    assert lines[-1] == plan_lines.UNKNOWN_MODEL.splitlines()[-1]


@pytest.fixture
def at_hand(tmp_path, monkeypatch) -> dict:
    """A language model in a folder, an encoder's config.json in the Hub's cache, and a thousand
    documents.
    """
    hub = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub))
    encoder = tiny_models.encoder(tmp_path / "there")
    snapshot = hub / "models--some--encoder/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    shutil.copy(encoder / "config.json", snapshot)

    values = values_of("paper-popqa")
    (retriever,) = values["retrievers"]
    path = str(tiny_models.language_model(tmp_path / "here"))
    values["lm"]["here"] = values["lm"][values["lms"][0]] | {"path": path}
    values["lms"] = ["here"]
    values["plan"]["documents"] = {"wikipedia": 1000}
    values["retriever"][retriever] |= {"path": "some/encoder", "revision": COMMIT}
    values["compute"]["device"] = "cpu"
    return values


def test_hours_are_tokens_by_half_of_the_machines_speed(at_hand):
    parsed = params_file.parse(at_hand)
    (name,) = at_hand["retrievers"]
    embeddings, answers = plan.plan_run(parsed).work
    assert (embeddings.model, embeddings.tokens) == (name, 1000 * parsed.chunk.tokens)
    assert (answers.model, answers.work) == ("here", "answers")
    for row, section in ((embeddings, parsed.retriever[name]), (answers, parsed.lm["here"])):
        operations = row.tokens * 2 * plan.size_of(section, parsed).parameters
        assert row.hours == pytest.approx(operations / (0.5 * SPEED) / 3600)


def test_embeddings_take_two_bytes_of_a_dimension(at_hand, tmp_path):
    (name,) = at_hand["retrievers"]
    width = AutoConfig.from_pretrained(tmp_path / "there").hidden_size
    assert plan.plan_run(params_file.parse(at_hand)).space["embeddings"] == 2 * 1000 * width

    at_hand["retriever"][name]["vectors"] = {"wikipedia": "nowhere.tar"}
    published = params_file.parse(at_hand)
    assert plan.plan_run(published).work[0].tokens == 0, "published vectors are read"

    at_hand["retriever"][name]["vectors"] = {}
    at_hand["parts"]["tuned"] = [name]
    at_hand["lsr"] |= {"lm": "here", "queries": "qa"}
    at_hand["popqa"]["train_share"] = 0.25
    tuned = params_file.parse(at_hand)
    planned = plan.plan_run(tuned)
    assert planned.space["embeddings"] == 2 * 2 * 1000 * width, "a tuned encoder has an index too"
    times = 2 + token_counts.count_rounds(tuned)
    assert planned.work[0].tokens == times * 1000 * tuned.chunk.tokens


def test_a_corpus_of_an_earlier_run_is_counted(project):
    planned = plan.plan_run(params_file.parse(project.settings), Path("data"))
    assert planned.documents["pile"] == 30


def test_a_gpu_reads_at_the_measured_rates(params):
    """The shares of docs/measured/benchmarks.md."""
    compute = params("paper-popqa").compute
    products = 788e12  # an H200's multiplications and additions a second in bf16

    def share(parameters: float, work: str, dtype: str = "bf16") -> float:
        rate = speed.tokens_per_second(work, int(parameters), 1, compute, dtype)
        return rate * 2 * parameters / products

    assert share(1e9, "answers") == pytest.approx(0.08, rel=0.01)
    assert share(7e9, "answers") == share(7e9, "answers", "auto") == pytest.approx(0.20, rel=0.01)
    assert share(1e9, "scores") == pytest.approx(0.47, rel=0.01)
    assert share(7e9, "scores") == pytest.approx(0.65, rel=0.01)
    assert share(1.1e8, "embeddings") == pytest.approx(0.24, rel=0.01)
    assert share(1.1e8, "training", "fp32") == pytest.approx(0.20 / 5, rel=0.01)
    assert share(1e8, "answers") < 0.02, "a small model's kernels are as many as a large one's"


def test_a_server_has_a_price_and_the_speed_of_its_limit():
    values = values_of("paper-replug")
    server = {
        "url": "http://127.0.0.1:9/v1",
        "max_tokens": 2048,
        "tokenizer": None,
        "extra": {},
        "concurrency": 8,
        "logprobs": 5,
        "requests_per_minute": None,
        "tokens_per_minute": 600_000,
        "prompt_price": 0.002,
        "completion_price": 0.002,
        "max_cost": None,
    }
    values["lm"]["gpt2-xl"] |= {"http": server}
    scores = plan.plan_run(params_file.parse(values)).work[1]
    assert scores.work == "scores for LSR of contriever"
    assert scores.cost == pytest.approx(scores.tokens * 0.002 / 1000)
    assert scores.hours == pytest.approx(scores.tokens / 36e6)
    server["tokens_per_minute"] = None
    scores = plan.plan_run(params_file.parse(values)).work[1]
    assert scores.hours is None, "a server without a limit says nothing of its speed"


def test_a_questions_tokens_follow_from_its_method(params):
    popqa = params("paper-popqa")
    parts = popqa.parts.model_copy(update={"answered": ["popqa"]})
    answer = popqa.answer.model_copy(update={"max_questions": 1, "shot_passages": True})
    popqa = popqa.model_copy(update={"parts": parts, "answer": answer})
    tokens = {
        "closed_book": 16 * 24 + 15,
        "genread": 2 * (24 + 150) + 15,  # all questions share its demonstrations
        "bm25": 16 * (24 + 128) + 15,
        "replug": 15 * (24 + 128) + 10 * (24 + 128 + 15),  # demonstrations are read once
    }
    for way, expected in tokens.items():
        of_way = popqa.model_copy(update={"ways": [way]})
        assert token_counts.count_answers(of_way, popqa.lm["opt-13b"]) == expected, way


def test_questions_with_options_are_longer(params):
    replug = params("paper-replug")
    replug = replug.model_copy(update={"ways": ["closed_book"]})
    mmlu = 14_042 * (6 * 120 + 10)
    open_questions = (3_610 + 11_313) * (17 * 24 + 10)
    assert token_counts.count_answers(replug, replug.lm["gpt2"]) == mmlu + open_questions


def test_lsr_reads_as_many_documents_as_in_the_paper():
    """REPLUG, section 5.2; the other numbers are in tests/test_profiles.py."""
    paper = values_of("paper-replug")
    lsr = paper["lsr"]
    of_the_paper = {
        "steps": 25_000,
        "batch_size": 64,
        "top_k": 20,
        "refresh_steps": 3000,
        "lm_queries": 800_000,
        "gamma": 0.1,
        "beta": 0.1,
        "learning_rate": 2e-5,
        "warmup": 0.1,
        "queries": "lm",
    }
    assert {name: lsr[name] for name in of_the_paper} == of_the_paper
    params = params_file.parse(paper)
    assert token_counts.count_rounds(params) == 9
    validated = 10 * lsr["validation_queries"] * 10
    assert token_counts.count_lsr_scores(params) == (25_000 * 64 * 20 + validated) * (128 + 256)
    lsr["lm_queries"] = 500
    params = params_file.parse(paper)
    read = token_counts.count_lsr_scores(params)
    assert read == (9 * 500 * 20 + validated) * 384, "once in a round"


def test_shipped_sizes_are_those_of_the_architectures():
    """transformers' defaults are GPT-2, OPT-125M and BERT base."""
    known = {}
    for name in ("laptop", "paper-popqa", "paper-replug"):
        for path, size in values_of(name)["plan"]["models"].items():
            assert known.setdefault(path, size) == size, "profiles agree"
    for path, kind in (
        ("gpt2", "gpt2"),
        ("facebook/opt-125m", "opt"),
        ("bert-base-uncased", "bert"),
    ):
        config = AutoConfig.for_model(kind)
        with torch.device("meta"):
            model_class = AutoModel if kind == "bert" else AutoModelForCausalLM
            model = model_class.from_config(config)
        parameters = model.num_parameters()
        if kind == "bert":
            parameters -= model.get_input_embeddings().weight.numel()
        assert known[path]["parameters"] == parameters
        assert known[path]["hidden_size"] == config.hidden_size
