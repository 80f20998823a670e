"""`longtail plan` says what a run will take, by what is at hand, and "unknown" where nothing tells."""

import shutil
import socket

import huggingface_hub
import pytest
import tiny_models
import yaml
from transformers import AutoModel, AutoModelForCausalLM

from flows import profiles
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.plan import amounts, forecast, speeds

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SPEED = 1e9  # of this machine's matrix products, which tests do not measure


@pytest.fixture(autouse=True)
def known_machine(monkeypatch, workplace):
    """A machine of a known speed, without models, corpora or a network; a question to the Hub fails the test."""

    def no_network(*_, **__):
        raise AssertionError("the plan asked the network")

    monkeypatch.setattr(speeds, "matrix_products", lambda threads, device, half: SPEED)
    monkeypatch.setattr(socket.socket, "connect", no_network)


@pytest.fixture
def composed(root):
    """A function that gives a profile's values."""
    return lambda profile: yaml.safe_load(profiles.compose(profile, root))


@pytest.fixture
def params(composed):
    """A function that gives a profile's params."""
    return lambda profile: params_file.parse(composed(profile))


def starting(lines: list[str], begins: str) -> list[str]:
    return [line for line in lines if line.startswith(begins)]


def test_the_papers_numbers(composed):
    paper = composed("paper-replug")
    lsr = paper["lsr"]
    of_the_paper = {"steps": 25_000, "batch_size": 64, "top_k": 20, "refresh_steps": 3000, "lm_queries": 800_000}
    of_the_paper |= {"gamma": 0.1, "beta": 0.1, "learning_rate": 2e-5, "warmup": 0.1, "queries": "lm"}
    assert {name: lsr[name] for name in of_the_paper} == of_the_paper
    needed = amounts.tuning(params_file.parse(paper))
    judged = 10 * lsr["validation_queries"] * 10
    assert (needed.queries, needed.refreshes) == (800_000, 9)
    assert needed.pairs == 25_000 * 64 * 20 + 800_000 + judged
    assert needed.lm_tokens == 25_000 * 64 * 20 * 384 + 800_000 * 256 + judged * 384
    assert needed.trained == 25_000 * 64 * (20 + 1) * 128
    paper["lsr"]["lm_queries"] = 500
    assert amounts.tuning(params_file.parse(paper)).pairs == 9 * 500 * 20 + 500 + judged, "once in a round"


def test_what_nothing_at_hand_tells_is_unknown_and_the_hub_is_not_asked(composed):
    lines = forecast.forecast(composed("paper-popqa"))
    assert starting(lines, "documents: ")[0].count("unknown") == len(composed("paper-popqa")["parts"]["corpora"])
    table = lines[4 : lines.index("", 4)]
    assert len(table) == 1 + len(composed("paper-popqa")["lms"]) + 1, "indexes, answers of each model, and the sum"
    assert all(row.split("  ")[-2].strip() != "0 s" and " unknown " in row for row in table)
    assert table[-1].endswith("and what is unknown")
    assert starting(lines, "disk: an unknown size of embeddings")
    (unknown,) = starting(lines, "unknown: the sizes of ")
    assert all(f" {name}," in unknown for name in composed("paper-popqa")["lms"])
    assert not starting(lines, "memory: ")


def test_pages_that_are_asked_for_by_title_are_not_all_of_wikipedia(composed):
    values = composed("laptop")
    assert "wikipedia unknown until it is there" in forecast.forecast(values)[1]
    values["corpus"]["wikipedia"]["documents"] = 5000
    assert "wikipedia 5,000 (at most, as the params say)" in forecast.forecast(values)[1]


@pytest.fixture
def at_hand(composed, tmp_path, monkeypatch) -> dict:
    """A language model in a folder, an encoder's config.json in the Hub's cache, and a thousand documents."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub := tmp_path / "hub"))
    there = tiny_models.encoder(tmp_path / "there")
    (snapshot := hub / "models--some--encoder/snapshots" / COMMIT).mkdir(parents=True)
    shutil.copy(there / "config.json", snapshot)
    values = composed("paper-popqa")
    (retriever,) = values["retrievers"]
    values["lm"] |= {
        "here": values["lm"][values["lms"][0]] | {"path": str(tiny_models.language_model(tmp_path / "here"))}
    }
    values["lms"] = ["here"]
    values["retriever"][retriever] |= {"path": "some/encoder", "revision": COMMIT}
    values["corpus"]["wikipedia"]["documents"] = 1000
    return values


def test_sizes_are_those_of_the_configs_at_hand_and_what_is_not_here_is_to_be_downloaded(at_hand, tmp_path):
    (name,) = at_hand["retrievers"]
    sizes = speeds.sizes(params_file.parse(at_hand), ())
    lm = AutoModelForCausalLM.from_pretrained(tmp_path / "here")
    assert (sizes["here"].parameters, sizes["here"].download) == (lm.num_parameters(), 0)
    encoder = AutoModel.from_pretrained(tmp_path / "there", add_pooling_layer=True)
    looked_up = encoder.get_input_embeddings().weight.numel()
    assert sizes[name].parameters == encoder.num_parameters()
    assert sizes[name].multiplied == encoder.num_parameters() - looked_up
    assert sizes[name].download == 4 * encoder.num_parameters()


def test_hours_are_tokens_by_half_of_the_machines_speed(at_hand):
    (name,) = at_hand["retrievers"]
    at_hand["compute"] |= {"workers": 1, "threads": 1}
    lines = forecast.forecast(at_hand)
    parsed = params_file.parse(at_hand)
    sizes = speeds.sizes(parsed, ())
    (answers,) = amounts.readings(parsed, parsed.lm["here"])
    seconds = {
        f"{name}: indexes": 1000 * parsed.chunk.tokens * 2 * sizes[name].multiplied / (0.5 * SPEED),
        "here: answers": sum(answers.stages) * 2 * sizes["here"].multiplied / (0.5 * SPEED),
    }
    for label, took in (seconds | {"together": sum(seconds.values())}).items():
        (line,) = starting(lines, f"{label} ")
        assert forecast._hours(took) in line
    assert "unknown" not in "\n".join(lines)


def test_a_server_has_a_price_and_the_speed_of_its_limit(composed):
    values = composed("paper-replug")
    server = {"url": "http://127.0.0.1:9/v1", "max_tokens": 2048, "tokenizer": None, "batch_size": 16, "extra": {}}
    server |= {"concurrency": 8, "logprobs": 5, "requests_per_minute": None, "tokens_per_minute": 600_000}
    server |= {"prompt_price": 0.002, "completion_price": 0.002, "max_cost": None}
    values["lm"]["gpt2-xl"] |= {"source": "http", "http": server}
    (line,) = starting(forecast.forecast(values), "contriever: gpt2-xl reads")
    assert "24,993.28" in line
    assert " 10 k " in line, "tokens a second"
    server["tokens_per_minute"] = None
    (line,) = starting(forecast.forecast(values), "contriever: gpt2-xl reads")
    assert " unknown " in line, "a server without a limit says nothing of its speed"


def test_an_index_that_does_not_fit_into_memory_is_refused(at_hand):
    at_hand["corpus"]["wikipedia"]["documents"] = 10**9
    at_hand["index"] |= {"kind": "flat", "memory_gb": 1.0}
    with pytest.raises(LongtailError, match=r"index\.memory_gb"):
        forecast.forecast(at_hand)


def test_stages_side_by_side_take_as_long_as_their_share_or_the_longest_of_them():
    assert speeds.together([30.0, 10.0, 20.0], 2) == 30
    assert speeds.together([30.0, 10.0, 40.0, 40.0], 2) == 60
    assert speeds.together([], 2) == 0


def test_popqas_prompts_are_questions_times_methods_with_all_demonstrations(params):
    popqa = params("paper-popqa")
    answers = amounts.answers(popqa)
    asked = 2 * 25_000
    closed_book, genread = 16 * 24, (24 + 150) + 15 + 16 * (24 + 150)
    with_a_passage = 16 * (24 + 128)  # BM25, Contriever
    assert answers.prompts == asked * 5, "GenRead asks twice"
    assert answers.tokens == asked * (closed_book + genread + 2 * with_a_passage + 4 * 15)
    assert amounts.answers(popqa, 0).tokens < answers.tokens / 5, "a model may have its own number of demonstrations"


def test_a_local_model_reads_demonstrations_before_several_documents_once(params):
    popqa = params("paper-popqa")
    parts = popqa.parts.model_copy(update={"answered": ["popqa"]})
    ways = [*popqa.ways, "replug"]
    answer = popqa.answer.model_copy(update={"max_questions": 1})
    popqa = popqa.model_copy(update={"parts": parts, "ways": ways, "answer": answer})
    stages = amounts.answers(popqa).stages
    closed_book, genread, bm25, dense, replug = stages
    assert closed_book == 16 * 24 + 15
    assert genread == 2 * (24 + 150) + 15, "all questions share its demonstrations"
    assert bm25 == dense == 16 * (24 + 128) + 15
    assert replug == 15 * (24 + 128) + 10 * (24 + 128 + 15)
    assert amounts.answers(popqa).tokens > sum(stages), "a server counts each prompt whole"


def test_replugs_scores_are_of_each_document_of_each_retriever(params):
    replug = params("paper-replug")
    scores, benchmarks = amounts.readings(replug, replug.lm["gpt2-xl"])
    documents = 6 * 10  # BM25's, Contriever's, BERT's, DPR's, LSR's and random ones
    with_one = 10_000 * (1 + documents) + 1_000 * 4 * 10
    controls = 10_000 * 3  # a longer context, and ten documents of Contriever's and of LSR's in one prompt
    assert scores.prompts == 2 * (with_one + controls)
    assert scores.tokens == 2 * (with_one * 3 + 10_000 * (3 + 2 * 12)) * 128
    assert benchmarks.prompts == (14_042 + 2 * 20_000) * (1 + 4 * 10)


def test_a_corpus_is_counted_where_these_params_made_it_and_guessed_from_their_files(project):
    values = project.settings
    values["fetch"] |= {"source": "files", "root": str(project.folder), "files": {"pile": ["dump.*"]}, "pages": None}
    values["corpus"]["pile"]["documents"] = None
    (project.folder / "dump.jsonl.bz2").write_bytes(bytes(40 * amounts.DOCUMENT))
    assert "pile 40 (a guess by the sizes of its files)" in forecast.forecast(values)[1]
    stages = {"fetch": {}, "tokenizer@documents": {}, "chunk@pile": {"params": {"params.yaml": {"seed": 0}}}}
    (project.folder / "dvc.lock").write_text(yaml.safe_dump({"stages": stages}))
    assert "pile 30 (counted)" in forecast.forecast(values)[1]
    assert "pile 40 (a guess" in forecast.forecast(values | {"seed": 1})[1], "they made another corpus"


def test_a_model_that_is_trained_has_the_size_of_its_settings(params):
    """Two feed-forward matrices as wide as intermediate_size and back, a gate, attention, and the embeddings."""
    sample = params("sample")
    training, vocabulary = sample.lm["tiny"].training, sample.tokenizer.vocab_size
    width, inner = training.hidden_size, training.intermediate_size
    weights = training.layers * (4 * width**2 + 3 * width * inner) + vocabulary * width
    assert speeds.sizes(sample, ())["tiny"] == (weights, weights, width, 0)
