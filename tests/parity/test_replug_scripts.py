"""The profile `paper-replug` cuts, weighs, asks and judges as the authors' scripts do, for
texts and for benchmarks.
"""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch
import yaml
from profile_values import values_of
from transformers import BertConfig, BertModel

from pipelines import catalogue
from pipelines.answering import answer, passages, prompts
from pipelines.corpus import source_batches
from pipelines.corpus.windows import rolling_windows
from pipelines.language import language
from pipelines.lm.language_model import Generation
from pipelines.lsr import objective
from pipelines.params import params_file
from pipelines.replug import ensemble
from pipelines.retrieval import encoder, retriever
from pipelines.sources.bz2_blocks import Part

GOLDEN = yaml.safe_load(Path(__file__).with_name("replug_scripts.yaml").read_text(encoding="utf-8"))
QA, MMLU, TEXTS = GOLDEN["qa"], GOLDEN["mmlu"], GOLDEN["passages"]
pytestmark = pytest.mark.usefixtures("workplace")


class Asked:
    """Says what it is told to, and keeps all prompts."""

    name, max_tokens, mixes, votes, scores, begins = "llama", 4096, True, True, True, " "

    def __init__(self, says=" Velm"):
        self.prompts, self.weights, self.says = [], [], says

    def choose(self, prompts, letters):
        self.prompts += [prompt.document + prompt.context for prompt in prompts]
        return np.log(np.full((len(prompts), 4), 0.25))

    def generate(self, prompts, max_tokens, stop="\n"):
        assert max_tokens == GOLDEN["settings"]["answer"]["new_tokens"]
        self.prompts += [prompt.document + prompt.context for prompt in prompts]
        return [Generation(self.says, -1.0, 1, 1)] * len(prompts)

    def generate_mixture(
        self, prompts, log_weights, max_tokens, stop="\n", *, sequence_mixture=False
    ):
        self.weights.append(np.exp(log_weights))
        return self.generate(prompts, max_tokens)[:: log_weights.shape[1]]

    def seen(self, prompts, max_tokens):
        return prompts


@pytest.fixture(scope="module")
def chosen():
    return params_file.parse(values_of("paper-replug"))


def open_question(question: str) -> str:
    return f"Question: {question}\nAnswer:"


def multiple_choice(question: str, *options: str) -> str:
    return "\n".join(
        [
            f"Question: {question}",
            *(f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=True)),
            "Answer:",
        ]
    )


FIRST = {open_question(one["question"]): one["first"] for one in QA["asked"]}
FIRST |= {open_question(question): i % len(TEXTS) for i, (question, _) in enumerate(QA["shown"])}
FIRST |= {multiple_choice(*one["row"][:5]): one["first"] for one in MMLU["test"]}
FIRST |= {multiple_choice(*row[:5]): i for i, row in enumerate(MMLU["dev"])}
SIMILARITIES = np.linspace(2.0, 1.1, 10, dtype=np.float32)


@pytest.fixture
def ask(chosen, monkeypatch):
    """Asks a set's questions as the stage `answer` does; gives the model that was asked, and the
    rows.
    """
    docs = Path("data/corpus/wikipedia/docs.parquet")
    docs.parent.mkdir(parents=True)
    ids = [f"{i:02}" for i in range(len(TEXTS))]
    pq.write_table(pa.table({"id": ids, "title": ["A title"] * len(ids), "text": TEXTS}), docs)
    by_query = {
        body.removeprefix("Question: ").removesuffix("\nAnswer:"): first
        for body, first in FIRST.items()
    }

    def search(queries, k):
        first = np.array([by_query[query] for query in queries])[:, None]
        return (first + np.arange(k)) % len(TEXTS), np.broadcast_to(
            SIMILARITIES[:k], (len(queries), k)
        )

    monkeypatch.setattr(retriever, "open_index", lambda *_, **__: SimpleNamespace(search=search))
    for split, rows in (("dev", MMLU["dev"]), ("test", [one["row"] for one in MMLU["test"]])):
        path = Path(f"data/raw/mmlu/{split}/virology_{split}.csv")
        path.parent.mkdir(parents=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    shown = [{"question": question, "answer": answers} for question, answers in QA["shown"]]
    for name, rows in (("test", QA["asked"]), ("train/train", shown)):
        path = Path(f"data/raw/nq/{name}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def ask(dataset, method, lm=None):
        lm, folder = lm or Asked(), Path("data/questions", dataset)
        catalogue.function(dataset, "questions")(chosen, folder)
        spoken = prompts.language_of(dataset, "en")
        source = passages.open_source(method, None, chosen, Path("data"), spoken)
        of_set = chosen.answer.of(dataset, chosen.lm["llama-2-13b"])
        key = f"{dataset}-{method}"
        setup = answer.Setup(dataset, method, lm, source, of_set, chosen.replug, chosen.seed, key)
        questions = pq.read_table(folder / f"{dataset}.parquet")
        shown = prompts.read_demonstrations(dataset, Path("data"))
        rows = answer.answer(questions, setup, shown)
        return lm, rows.to_pylist()

    return ask


def knowledge(number: int) -> str:
    return f"Knowledge: {TEXTS[number % len(TEXTS)]}\n"


def test_the_numbers_are_the_scripts(chosen):
    for section, values in GOLDEN["settings"].items():
        assert {name: getattr(getattr(chosen, section), name) for name in values} == values, section
    assert chosen.answer.sets["mmlu"].n_shots == GOLDEN["mmlu_shots"]
    for name, values in GOLDEN["retrievers"].items():
        assert {key: getattr(chosen.retriever[name], key) for key in values} == values, name
    assert not chosen.corpus["wikitext"].titles, "texts are embedded without titles"
    window = chosen.windows.context_tokens + chosen.windows.stride_tokens - 1
    assert (window, window + chosen.chunk.tokens) == (896, 1024), (
        "a window and a document fill GPT-2"
    )


@pytest.mark.parametrize("tokens", GOLDEN["windows"])
def test_a_text_has_the_windows_of_the_script(chosen, tokens):
    found = rolling_windows(np.arange(tokens + 1), *chosen.windows.model_dump().values())
    assert [list(window) for window in found] == GOLDEN["windows"][tokens]


def test_vectors_are_the_scripts(chosen):
    golden = GOLDEN["embeddings"]
    own = tiny_models.tokenizer(bos=False)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 600}
    config = BertConfig(vocab_size=len(own), **tiny_models.ENCODER | sizes)
    model = BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for number, weights in enumerate(model.parameters()):
            if weights.ndim == 2:
                numbers = (torch.arange(weights.numel()) * 7919 + number) % 1009
                weights.copy_((numbers / 504.5 - 1).reshape(weights.shape))
    model.save_pretrained("encoder")
    own.model_max_length = 600
    own.save_pretrained("encoder")
    compute = chosen.compute.model_copy(update={"device": "cpu", "threads": 1})
    opened = encoder.Encoder.open(
        Path("encoder"), chosen.retriever["contriever"], compute, encoder.EXACT
    )
    sentence, times = golden["repeated"]
    texts = [*TEXTS[:9], sentence * times]
    for embed in (opened.embed, opened.embed_queries):
        np.testing.assert_allclose(embed(texts), golden["vectors"], atol=2e-4)
    of_texts = [*golden["vectors"][:9], golden["text_query"]]
    np.testing.assert_allclose(opened.embed_queries(texts, of_texts=True), of_texts, atol=2e-4)


def test_the_loss_of_lsr_is_the_scripts(chosen):
    golden = GOLDEN["lsr"]
    settings = {name: getattr(chosen.lsr, name) for name in golden["settings"]}
    assert settings == golden["settings"]
    scores = torch.tensor([golden["scores"]])
    gold = torch.tensor([golden["gold"]])
    loss = objective.lsr_loss(scores, gold, **settings)
    assert loss.item() == pytest.approx(golden["loss"], rel=1e-5)


def test_wikitext_is_one_text_as_in_the_script(chosen):
    golden = GOLDEN["wikitext"]
    path = Path("wiki.test.tokens")
    path.write_text(golden["file"])
    settings = source_batches.CorpusSettings(
        name="wikitext",
        tokenizer=Path(),
        seed=chosen.seed,
        corpus=chosen.corpus["wikitext"],
        chunk=chosen.chunk,
        queries=chosen.queries,
        windows=chosen.windows,
        media=language.read_language("en").media,
    )
    assert settings.corpus.test_lines == golden["lines"]
    source_batches.read_part(settings, 0.0, 1000, 0.0, Part(path), Path("read"))
    table = pq.read_table("read/000000.parquet")
    assert table["text"].to_pylist() == [golden["text"]]
    assert table["split"].to_pylist() == ["test"]


@pytest.mark.parametrize("case", GOLDEN["mixture"], ids=str)
def test_documents_weigh_by_the_softmax_of_their_raw_scores(chosen, case):
    weights = ensemble.log_weights(np.array([case["scores"]]), chosen.replug.temperature)
    logs = np.log(np.array(case["probabilities"]))[None, :, None]
    np.testing.assert_allclose(
        np.exp(ensemble.token_mixture(logs, weights)), [[case["mixed"]]], rtol=1e-6
    )


@pytest.mark.parametrize("method", ["closed_book", "dense", "replug"])
def test_open_question_prompts_are_the_scripts(ask, method):
    """The order of demonstrations alone differs."""
    lm, _ = ask("nq", method)
    each = 10 if method == "replug" else 1
    asked = [prompt.rpartition("\n\n") for prompt in lm.prompts]
    expected = set()
    for one in QA["asked"]:
        before = [knowledge(one["first"] + rank) for rank in range(10)]
        lines = "\n".join(text.removeprefix("Knowledge: ").strip() for text in before)
        before = {"closed_book": [""], "dense": [f"Knowledge: {lines}\n"], "replug": before}[method]
        expected |= {text + open_question(one["question"]) for text in before}
    assert (len(asked), len(expected)) == (each * len(QA["asked"]),) * 2
    assert {end for *_, end in asked} == expected
    golden = {"dense": GOLDEN["one_prompt"], "replug": GOLDEN["open_book"]["qa"]}
    assert {golden.get(method)} - {None} <= expected
    document = (lambda _: "") if method == "closed_book" else knowledge
    shown = [
        f"{document(i)}{open_question(question)} {answers[0]}"
        for i, (question, answers) in enumerate(QA["shown"])
    ]
    assert method == "closed_book" or GOLDEN["open_book"]["qa_shown"] == f"{shown[1]}\n\n"
    for before, *_ in asked:
        assert sorted(before.split("\n\n")) == sorted(shown)
    if method == "replug":
        weights = np.exp(SIMILARITIES) / np.exp(SIMILARITIES).sum()
        np.testing.assert_allclose(
            np.concatenate(lm.weights), [weights] * len(QA["asked"]), rtol=1e-5
        )


@pytest.mark.parametrize("method", ["closed_book", "replug"])
def test_mmlu_prompts_are_the_scripts(ask, method):
    """The form of the letters alone differs."""
    lm, _ = ask("mmlu", method)
    document = (lambda _: "") if method == "closed_book" else knowledge
    shown = [
        f"{document(i)}{multiple_choice(*row[:5])} {row[5]}\n\n"
        for i, row in enumerate(MMLU["dev"][:5])
    ]
    ranks = range(10) if method == "replug" else range(1)
    expected = [
        "".join(shown) + document(one["first"] + rank) + multiple_choice(*one["row"][:5])
        for one in MMLU["test"]
        for rank in ranks
    ]
    assert lm.prompts == expected
    if method == "replug":
        assert shown[1] == GOLDEN["open_book"]["mmlu_shown"]
        assert expected[0].endswith("\n\n" + GOLDEN["open_book"]["mmlu"])


def test_an_open_answer_is_right_where_the_script_says_so(ask, monkeypatch):
    for i, (says, answers, right) in enumerate(GOLDEN["matching"]):
        monkeypatch.setitem(QA["asked"][0], "answer", answers)
        Path("data/raw/nq/test.jsonl").write_text(json.dumps(QA["asked"][0]) + "\n")
        lm = Asked(says)
        lm.name = f"llama{i}"  # finished work lies by the name
        _, (row,) = ask("nq", "closed_book", lm)
        assert row["correct"] == right, says
