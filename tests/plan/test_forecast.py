"""`longtail plan` says what a run will take by what is at hand, and "unknown" otherwise."""

import re
import shutil
import socket
from pathlib import Path

import huggingface_hub
import pytest
import tiny_models
import torch
import yaml
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from flows import profiles
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.plan import forecast, model_sizes, plan_lines, speed, token_counts

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SPEED = 1e9  # of this machine's matrix products, which tests do not measure


@pytest.fixture(autouse=True)
def known_machine(monkeypatch, workplace):
    """A machine of a known speed, without models, corpora or a network; a question to the Hub fails
    the test.
    """

    def no_network(*_, **__):
        raise AssertionError("the plan asked the network")

    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: SPEED)
    monkeypatch.setattr(socket.socket, "connect", no_network)


@pytest.fixture
def composed(root):
    """A function that gives a profile's values."""
    return lambda profile: yaml.safe_load(profiles.compose(profile, root))


@pytest.fixture
def params(composed):
    """A function that gives a profile's params."""
    return lambda profile: params_file.parse(composed(profile))


def planned(values: dict) -> list[str]:
    """The plan as lines."""
    return list(plan_lines.plan_lines(forecast.forecast(values)))


def starting(lines: list[str], begins: str) -> list[str]:
    return [line for line in lines if line.startswith(begins)]


def test_the_papers_numbers(composed):
    paper = composed("paper-replug")
    lsr = paper["lsr"]
    of_the_paper = {
        "steps": 25_000,
        "batch_size": 64,
        "top_k": 20,
        "refresh_steps": 3000,
        "lm_queries": 800_000,
    }
    of_the_paper |= {
        "gamma": 0.1,
        "beta": 0.1,
        "learning_rate": 2e-5,
        "warmup": 0.1,
        "queries": "lm",
    }
    assert {name: lsr[name] for name in of_the_paper} == of_the_paper
    tuning = token_counts.count_tuning(params_file.parse(paper))
    reading = tuning.reading
    judged = 10 * lsr["validation_queries"] * 10
    assert tuning.refreshes == 9
    assert reading.prompts == 25_000 * 64 * 20 + 800_000 + judged
    assert (
        reading.sent_tokens
        == reading.read_tokens
        == 25_000 * 64 * 20 * 384 + 800_000 * 256 + judged * 384
    )
    assert tuning.trained_tokens == 25_000 * 64 * (20 + 1) * 128
    paper["lsr"]["lm_queries"] = 500
    assert (
        token_counts.count_tuning(params_file.parse(paper)).reading.prompts
        == 9 * 500 * 20 + 500 + judged
    ), "once in a round"


def test_what_nothing_at_hand_tells_is_unknown(composed):
    """The hub is not asked."""
    values = composed("paper-popqa")
    del values["plan"]
    lines = planned(values)
    assert starting(lines, "documents: ")[0].count("unknown") == len(
        composed("paper-popqa")["parts"]["corpora"]
    )
    table = lines[4 : lines.index("", 4)]
    assert len(table) == 1 + len(composed("paper-popqa")["lms"]) + 1, (
        "indexes, answers of each model, and the sum"
    )
    assert all(" 0.00 h" not in row and " unknown" in row for row in table)
    assert table[-1].endswith("and what is unknown")
    assert starting(lines, "disk: an unknown size of embeddings")
    assert starting(lines, "download: an unknown size of weights")
    (unknown,) = starting(lines, "unknown: the sizes of ")
    assert all(f" lm.{name}," in unknown for name in composed("paper-popqa")["lms"])
    assert unknown.endswith(
        "whose config.json is not at hand; `hf download NAME config.json` brings one, "
        "or write them into plan.models"
    )
    assert not starting(lines, "memory: ")


def test_columns_stand_below_each_other_whatever_the_names(composed):
    values = composed("paper-popqa")
    name = "a-language-model-with-a-name-of-44-characters"
    values["lm"][name] = values["lm"][values["lms"][0]]
    values["lms"] = [*values["lms"], name]
    lines = planned(values)
    table = lines[3 : lines.index("", 4)]
    assert all(row[: len(table[0])].endswith((" h", " unknown")) for row in table[1:])
    assert starting(table, f"{name}: answers ")


@pytest.fixture
def at_hand(composed, tmp_path, monkeypatch) -> dict:
    """A language model in a folder, an encoder's config.json in the Hub's cache, and a thousand
    documents.
    """
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub := tmp_path / "hub"))
    there = tiny_models.encoder(tmp_path / "there")
    (snapshot := hub / "models--some--encoder/snapshots" / COMMIT).mkdir(parents=True)
    shutil.copy(there / "config.json", snapshot)
    values = composed("paper-popqa")
    (retriever,) = values["retrievers"]
    values["lm"] |= {
        "here": values["lm"][values["lms"][0]]
        | {"path": str(tiny_models.language_model(tmp_path / "here"))}
    }
    values["lms"] = ["here"]
    values["plan"]["documents"] = {}
    values["retriever"][retriever] |= {"path": "some/encoder", "revision": COMMIT}
    values["corpus"]["wikipedia"]["documents"] = 1000
    return values


def test_sizes_are_those_of_the_configs_at_hand(at_hand, tmp_path):
    """What is not here is to be downloaded."""
    (name,) = at_hand["retrievers"]
    models = model_sizes.read_models(params_file.parse(at_hand))
    at_home = models["lm.here"].size
    encoder_size = models[f"retriever.{name}"].size
    lm = AutoModelForCausalLM.from_pretrained(tmp_path / "here")
    assert (at_home.parameters, at_home.download) == (lm.num_parameters(), 0)
    encoder = AutoModel.from_pretrained(tmp_path / "there", add_pooling_layer=True)
    looked_up = encoder.get_input_embeddings().weight.numel()
    assert encoder_size.parameters == encoder.num_parameters()
    assert encoder_size.multiplied == encoder.num_parameters() - looked_up
    assert encoder_size.download == 4 * encoder.num_parameters()


def test_published_vectors_are_read_and_not_embedded(at_hand, tmp_path):
    (name,) = at_hand["retrievers"]
    folder = tmp_path / "wikipedia_embeddings"
    folder.mkdir()
    for number, size in enumerate((100, 300)):
        (folder / f"passages_{number:02d}").write_bytes(bytes(size << 20))
    at_hand["retriever"][name]["vectors"] = {"wikipedia": str(folder)}
    lines = planned(at_hand)
    (indexes,) = starting(lines, f"{name}: indexes ")
    assert re.search(r" 0 .* 0\.00 h +the published vectors of wikipedia are read$", indexes)
    assert f"disk: published vectors are read from {folder}, 0.4 GB" in lines
    (memory,) = starting(lines, f"memory: retriever.{name} ")
    assert memory.endswith("; of its published vectors 0.3 GiB at a time")

    at_hand["parts"]["tuned"] = [name]
    at_hand["lsr"] |= {"lm": "here", "queries": "qa"}
    at_hand["popqa"]["train_share"] = 0.25
    at_hand["retriever"][name]["vectors"] = {"wikipedia": "nowhere.tar"}
    plan = forecast.forecast(at_hand)
    parsed = params_file.parse(at_hand)
    embeddings = 1 + token_counts.count_tuning(parsed).refreshes
    assert plan.work[0].tokens == 1000 * embeddings * parsed.chunk.tokens, "the tuned encoder's"
    lines = list(plan_lines.plan_lines(plan))
    assert "disk: published vectors are read from nowhere.tar, unknown" in lines


def test_hours_are_tokens_by_half_of_the_machines_speed(at_hand):
    (name,) = at_hand["retrievers"]
    at_hand["compute"]["device"] = "cpu"
    lines = planned(at_hand)
    parsed = params_file.parse(at_hand)
    rates = {
        place: 0.5 * SPEED / (2 * model.size.multiplied)
        for place, model in model_sizes.read_models(parsed).items()
    }
    read = token_counts.count_answers(parsed, parsed.lm["here"]).read_tokens
    seconds = {
        f"{name}: indexes": 1000 * parsed.chunk.tokens / rates[f"retriever.{name}"],
        "here: answers": read / rates["lm.here"],
    }
    for label, took in (seconds | {"together": sum(seconds.values())}).items():
        (line,) = starting(lines, f"{label} ")
        assert f" {took / 3600:,.2f} h" in line
    assert "unknown" not in "\n".join(lines)


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_gpu_reaches_the_measured_shares(composed, monkeypatch, has_gpu):
    """Without a GPU at hand the products are an H200's."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    values = composed("paper-popqa")
    compute = params_file.parse(values).compute
    products = SPEED if has_gpu else 788e12

    def share(parameters: float, work: str, dtype: str = "bf16") -> float:
        size = model_sizes.Size(int(parameters), int(parameters), hidden=768, download=0)
        rate = speed.tokens_per_second(size, work, 1, compute, dtype)
        return rate * 2 * parameters / products

    assert share(1e9, "answers") == pytest.approx(0.08)
    assert share(7e9, "answers") == share(7e9, "answers", "auto") == pytest.approx(0.20)
    assert share(7e9, "scores") == pytest.approx(0.65)
    assert share(1.1e8, "training", "fp32") == pytest.approx(0.20 / 5)
    assert share(1e8, "answers") < 0.02, "a small model's kernels are as many as a large one's"
    device = "this machine's GPU" if has_gpu else "one H200 or H100, by measured rates"
    assert device in planned(values)[0]


def test_auto_and_null_follow_the_device(composed):
    values = composed("paper-popqa")
    values["lms"] = ["opt-1b3"]
    values["lm"]["opt-1b3"] |= {"dtype": "auto", "batch_tokens": None}
    (memory,) = starting(planned(values), "memory: lm.opt-1b3")
    assert "2.5 GiB of weights in bf16" in memory
    values["compute"]["device"] = "cpu"
    (memory,) = starting(planned(values), "memory: lm.opt-1b3")
    assert "4.9 GiB of weights in fp32" in memory


def test_stages_side_by_side_use_all_threads(composed, monkeypatch):
    used = []
    monkeypatch.setattr(
        speed, "matrix_products", lambda threads, device, half: used.append(threads) or SPEED
    )
    monkeypatch.setattr(forecast.os, "cpu_count", lambda: 8)
    values = composed("sample")
    values["compute"] |= {"workers": 3, "threads": 2}
    planned(values)
    assert used == [6, 2, 2, 6, 6, 6], "of LSR's rows one process"
    values["compute"]["workers"] = 30
    planned(values)
    assert max(used) == 8


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
def test_each_profiles_hours_are_within_bounds(composed, root, profile, monkeypatch):
    """The profile alone tells the sizes of its models and corpora."""
    monkeypatch.setattr(model_sizes, "size_by_config", lambda path, revision, is_lm: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(forecast.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: 1.5e11 * threads)
    lines = planned(composed(profile))
    assert "unknown" not in "\n".join(lines)
    together = [line.split(" h ")[0].split()[-1] for line in starting(lines, "together")]
    least, most = HOURS[profile]
    hours = sum(float(hours.replace(",", "")) for hours in together)
    assert least <= hours <= most
    if profile in ("paper-popqa", "paper-replug"):
        readme = (root / "README.md").read_text(encoding="utf-8")
        stated = re.search(rf"`{profile}` .* (\d+) hours on an H200", readme)
        assert float(stated[1]) == pytest.approx(hours, rel=0.1)


def test_a_server_has_a_price_and_the_speed_of_its_limit(composed):
    values = composed("paper-replug")
    server = {
        "url": "http://127.0.0.1:9/v1",
        "max_tokens": 2048,
        "tokenizer": None,
        "batch_size": 16,
        "extra": {},
    }
    server |= {
        "concurrency": 8,
        "logprobs": 5,
        "requests_per_minute": None,
        "tokens_per_minute": 600_000,
    }
    server |= {"prompt_price": 0.002, "completion_price": 0.002, "max_cost": None}
    values["lm"]["gpt2-xl"] |= {"source": "http", "http": server}
    (line,) = starting(planned(values), "contriever: gpt2-xl reads")
    assert "24,993.28" in line
    assert " 10 k " in line, "tokens a second"
    server["tokens_per_minute"] = None
    (line,) = starting(planned(values), "contriever: gpt2-xl reads")
    assert " unknown " in line, "a server without a limit says nothing of its speed"


def test_an_index_that_does_not_fit_into_memory_is_refused(at_hand):
    at_hand["corpus"]["wikipedia"]["documents"] = 10**9
    at_hand["index"] |= {"kind": "flat", "memory_gb": 1.0}
    with pytest.raises(LongtailError, match=r"index\.memory_gb"):
        planned(at_hand)


def test_popqas_prompts_are_questions_times_methods(params):
    popqa, asked = params("paper-popqa"), 2 * 25_000
    lm = popqa.lm["opt-13b"]
    for read in (
        1,
        16,
    ):  # passages in a prompt: the question's own, and with `shot_passages` its demonstrations'
        answer = popqa.answer.model_copy(update={"shot_passages": read > 1})
        answers = token_counts.count_answers(popqa.model_copy(update={"answer": answer}), lm)
        closed_book, genread = 16 * 24, (24 + 150) + 15 + 16 * 24 + read * 150
        with_a_passage = 16 * 24 + read * 128  # BM25, Contriever
        assert answers.prompts == asked * 5, "GenRead asks twice"
        assert answers.sent_tokens == asked * (closed_book + genread + 2 * with_a_passage + 4 * 15)
    alone = lm.model_copy(update={"n_shots": 0})
    assert token_counts.count_answers(popqa, alone).sent_tokens < answers.sent_tokens / 5, (
        "a model may have its own number of demonstrations"
    )


def test_demonstrations_before_documents_are_read_once(params):
    popqa = params("paper-popqa")
    parts = popqa.parts.model_copy(update={"answered": ["popqa"]})
    answer = popqa.answer.model_copy(update={"max_questions": 1, "shot_passages": True})
    popqa = popqa.model_copy(update={"parts": parts, "answer": answer})
    read = {  # by a question
        "closed_book": 16 * 24 + 15,
        "genread": 2 * (24 + 150) + 15,  # all questions share its demonstrations
        "bm25": 16 * (24 + 128) + 15,
        "dense": 16 * (24 + 128) + 15,
        "replug": 15 * (24 + 128) + 10 * (24 + 128 + 15),
        "replug_lsr": 15 * (24 + 128) + 10 * (24 + 128 + 15),
    }
    for way, expected in read.items():
        reading = token_counts.count_answers(
            popqa.model_copy(update={"ways": [way]}), popqa.lm["opt-13b"]
        )
        assert reading.read_tokens == expected
        assert (reading.sent_tokens > expected) == (reading.prompts > 1), (
            "a server counts each prompt whole"
        )


def test_replugs_scores_are_of_each_document_of_each_retriever(params):
    replug = params("paper-replug")
    scores = token_counts.count_scores(replug)
    documents = 6 * 10  # BM25's, Contriever's, BERT's, DPR's, LSR's and random ones
    with_one = 10_000 * (1 + documents) + 1_000 * 4 * 10
    controls = (
        10_000 * 3
    )  # a longer context, and ten documents of Contriever's and of LSR's in one prompt
    assert scores.prompts == 2 * (with_one + controls)
    assert scores.sent_tokens == 2 * (with_one * 3 + 10_000 * (3 + 2 * 12)) * 128
    answers = token_counts.count_answers(replug, replug.lm["gpt2"])
    assert answers.prompts == (14_042 + 3_610 + 11_313) * (1 + 1 + 2 * 10)


def test_a_corpus_is_counted_where_these_params_made_it(project):
    values = project.settings
    values["corpus"]["pile"]["documents"] = None
    values["plan"]["documents"] = {}
    Path("params.yaml").unlink(missing_ok=True)
    assert "pile unknown" in planned(values)[1]
    Path("params.yaml").write_text(yaml.safe_dump(values))
    assert "pile 30 (counted)" in planned(values)[1]
    assert "pile unknown" in planned(values | {"seed": 1})[1], "they made another corpus"


def test_a_model_that_is_trained_has_the_size_of_its_settings(params):
    """Two feed-forward matrices as wide as intermediate_size and back, a gate, attention, and the
    embeddings.
    """
    sample = params("sample")
    training, vocabulary = sample.lm["tiny"].training, sample.tokenizer.vocab_size
    width, inner = training.hidden_size, training.intermediate_size
    weights = training.layers * (4 * width**2 + 3 * width * inner) + vocabulary * width
    assert model_sizes.read_models(sample)["lm.tiny"].size == (
        weights,
        weights,
        width,
        0,
        training.positions,
    )


def test_shipped_sizes_are_those_of_the_architectures(composed):
    """transformers' defaults are GPT-2, OPT-125M and BERT base."""
    known = {}
    for name in ("laptop", "paper-popqa", "paper-replug"):
        for model in composed(name)["plan"]["models"]:
            assert known.setdefault(model["path"], model) == model, "profiles agree"
    for path, kind in (
        ("gpt2", "gpt2"),
        ("facebook/opt-125m", "opt"),
        ("bert-base-uncased", "bert"),
    ):
        config = AutoConfig.for_model(kind)
        with torch.device("meta"):
            model_class = AutoModel if kind == "bert" else AutoModelForCausalLM
            model = model_class.from_config(config)
        assert known[path]["parameters"] == model.num_parameters()
        assert known[path]["vocabulary"] == config.vocab_size
        assert known[path]["hidden_size"] == config.hidden_size


def test_models_of_one_name_keep_their_own_sizes(composed):
    """A language model and an encoder may have one name, and two models one folder of the Hub."""
    values = composed("laptop")
    other = {"path": "else/MiniLM", "revision": COMMIT, "parameters": 10**9, "hidden_size": 10}
    values["plan"]["models"].append(other | {"vocabulary": 10, "dtype": "fp16"})
    values["lm"]["minilm"] = values["lm"]["smollm2-135m"] | {"path": "else/MiniLM"}
    values["lm"]["minilm"]["revision"] = COMMIT
    values["lm"]["twice"] = values["lm"]["minilm"] | {"dtype": "bf16"}
    values["lms"] += ["minilm", "twice"]
    models = model_sizes.read_models(params_file.parse(values))
    assert models["lm.minilm"].size.parameters == 10**9
    assert models["retriever.minilm"].size.parameters == 22_713_216
    downloads = 2 * (134_515_008 + 10**9) + 4 * 22_713_216
    assert model_sizes.count_download(models) == downloads, "of one model once"
    values["lm"]["twice"]["revision"] = "f" * 40
    assert forecast.forecast(values).unknown == ["lm.twice"], "another commit may have another size"
