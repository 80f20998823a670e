"""Answers and scores of language models on one device: Longtail beside transformers.

Answers are made by the stage's function: without passages, with passages in the demonstrations too,
and by REPLUG's mixture. Weights are random, in the shapes of Llamas.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import lm_real, plain_ways
from benchmarks.device import Comparison, Device, LanguageModelSize, read_profile
from benchmarks.measure import Row
from benchmarks.random_models import random_words, write_language_model
from pipelines.answering import answer, passages, prompts
from pipelines.answering.passages import Source
from pipelines.lm import open_lm
from pipelines.lm.language_model import Prompt

QUESTION_WORDS = 12
PASSAGE_WORDS = 128
N_SHOTS = 15
DOCUMENTS = 10  # of a question in an ensemble, and of a query that is scored
PLAIN_GENERATE = f"transformers' generate, sorted, {plain_ways.PROMPTS_AT_ONCE} at once"
PLAIN_MIXTURE = "transformers, a question at a time"
PLAIN_SCORES = f"transformers, padded, {plain_ways.PROMPTS_AT_ONCE} at once"
CLOSE = 0.1  # nats a token between two ways in bf16
KEYS = itertools.count()  # with a key of its own, a call of `answer` starts anew


class LanguageModels:
    """A language model of random weights as Longtail and as transformers open it."""

    def __init__(self, device: Device, name: str, size: LanguageModelSize) -> None:
        self.name = name
        self.words = size.shape.vocab_size
        folder = Path(name).absolute()
        write_language_model(size.shape, folder, device.name, device.dtype)

        params = read_profile("paper-popqa", device)
        section = params.lm[params.lms[0]]
        section = section.model_copy(update={"dtype": device.number_format})
        self.params = params.model_copy(update={"lm": {name: section}})
        self.ours = open_lm.open_local(
            folder, section, device.compute, chat=False, deterministic=False
        )
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=device.dtype)
        self.plain = model.to(device.name).eval()

        layers = self.plain.model.layers.parameters()
        self.layer_weights = sum(weight.numel() for weight in layers)
        self.output_weights = self.words * size.shape.hidden_size

    def count_tokens(self, texts: list[str]) -> int:
        return sum(map(len, self.tokenizer(texts)["input_ids"]))

    def operations(self, read: int, predicted: int) -> float:
        """Multiplications and additions for tokens that are read, and tokens that are predicted."""
        return 2.0 * (read * self.layer_weights + predicted * self.output_weights)


def language_models(device: Device) -> Iterator[Row]:
    for name, size in device.sizes.language_models.items():
        models = LanguageModels(device, name, size)
        few = size.questions // 8
        yield device.row(compare_answers(models, "closed_book", size.questions))
        yield device.row(compare_answers(models, "dense", few))
        yield device.row(compare_answers(models, "replug", few // 2))
        yield device.row(compare_scores(models, size.queries))


def compare_answers(models: LanguageModels, method: str, n_questions: int) -> Comparison:
    questions = make_questions(n_questions, models.words)
    source = None
    if method != "closed_book":
        source = make_source(method, questions["question"].to_pylist(), models.words)
    changes = {"n_shots": N_SHOTS, "shot_passages": method == "dense"}
    answer_settings = models.params.answer.model_copy(update=changes)
    settings = models.params.model_copy(update={"answer": answer_settings})

    prompts_of_questions = []
    pool = prompts.read_questions(questions)
    for place in range(n_questions):
        sent, _, _ = passages.prompts_of_question(
            settings, "popqa", pool, place, models.name, source
        )
        prompts_of_questions.append(sent)
    sent = list(itertools.chain.from_iterable(prompts_of_questions))
    n_read = models.count_tokens([prompt.document + prompt.context for prompt in sent])
    n_written = len(sent) * answer_settings.new_tokens

    def ours() -> list[str]:
        setup = answer.Setup(
            dataset="popqa",
            method=method,
            lm=models.ours,
            source=source,
            answer=answer_settings,
            replug=settings.replug,
            seed=settings.seed,
            key=str(next(KEYS)),
        )
        table, _ = answer.answer(questions, setup)
        return table["prediction"].to_pylist()

    plain = partial(plain_answers, models, prompts_of_questions, answer_settings.new_tokens)
    works = {
        "closed_book": f"answers, {N_SHOTS} demonstrations",
        "dense": f"answers, {N_SHOTS} demonstrations with passages",
        "replug": f"answers by REPLUG, {DOCUMENTS} documents, {N_SHOTS} demonstrations",
    }
    return Comparison(
        work=f"{works[method]}, {models.name}",
        unit="questions",
        size=n_questions,
        operations=models.operations(n_read + n_written, n_written),
        peer=PLAIN_MIXTURE if method == "replug" else PLAIN_GENERATE,
        plain=plain,
        ours=ours,
        agree=same_texts,
    )


def plain_answers(
    models: LanguageModels, prompts_of_questions: list[list[Prompt]], new_tokens: int
) -> list[str]:
    """Answers to questions with a prompt each, or under the mixture of several."""
    is_mixture = len(prompts_of_questions[0]) > 1
    if not is_mixture:
        sent = [prompt for (prompt,) in prompts_of_questions]
        return plain_ways.answers(models.plain, models.tokenizer, sent, new_tokens)
    answers = []
    for sent in prompts_of_questions:
        text = plain_ways.mixture_answer(models.plain, models.tokenizer, sent, new_tokens)
        answers.append(text)
    return answers


def make_questions(count: int, words: int) -> pa.Table:
    draw = np.random.default_rng(0)
    return pa.table(
        {
            "question_id": [f"{number:06d}" for number in range(count)],
            "relation": [f"P{number % 16}" for number in range(count)],
            "subj": [f"S{number}" for number in range(count)],
            "question": [random_words(draw, QUESTION_WORDS, words) for _ in range(count)],
            "possible_answers": [[random_words(draw, 2, words)] for _ in range(count)],
            "split": ["test"] * count,
        }
    )


def make_source(method: str, questions: list[str], words: int) -> Source:
    """Random passages for each question: one, or DOCUMENTS for an ensemble."""
    draw = np.random.default_rng(1)
    count = DOCUMENTS if method == "replug" else 1
    rows = {}
    for question in questions:
        rows[question] = {
            "texts": [random_words(draw, PASSAGE_WORDS, words) for _ in range(count)],
            "doc_ids": ["d"] * count,
            "titles": [""] * count,
            "similarities": [1.0] * count,
            "prompt_tokens": 0,
            "new_tokens": 0,
        }

    def find(texts: list[str]) -> pa.Table:
        return pa.Table.from_pylist([rows[text] for text in texts], schema=passages.SCHEMA)

    return Source(find, at_once=passages.SEARCHED_AT_ONCE, written=False)


def compare_scores(models: LanguageModels, n_queries: int) -> Comparison:
    """DOCUMENTS documents of each query, with a context and a continuation as long as they are."""
    draw = np.random.default_rng(0)
    pairs = []
    continuations = []
    for _ in range(n_queries):
        context = random_words(draw, PASSAGE_WORDS, models.words)
        continuation = random_words(draw, PASSAGE_WORDS, models.words)
        for _ in range(DOCUMENTS):
            document = random_words(draw, PASSAGE_WORDS, models.words)
            pairs.append(Prompt(f"{context} ", f"{document} "))
            continuations.append(continuation)

    ours: Callable[[], np.ndarray] = partial(lm_real.scores, models.ours, pairs, continuations)
    plain = partial(
        plain_ways.scores,
        models.plain,
        models.tokenizer,
        plain_ways.PROMPTS_AT_ONCE,
        pairs,
        continuations,
    )
    n_predicted = len(pairs) * PASSAGE_WORDS
    return Comparison(
        work=f"scoring, {DOCUMENTS} documents a query, {models.name}",
        unit="pairs",
        size=len(pairs),
        operations=models.operations(3 * n_predicted, n_predicted),
        peer=PLAIN_SCORES,
        plain=plain,
        ours=ours,
        agree=close_scores,
    )


def same_texts(left: list[str], right: list[str], device: Device) -> bool:
    """Whether all answers are the same; in bf16 rounding decides between random weights' tokens."""
    return left == right or device.is_gpu


def close_scores(left: np.ndarray, right: np.ndarray, device: Device) -> bool:
    """Whether log-probabilities are the same but for rounding."""
    close = CLOSE if device.is_gpu else 1e-4
    return bool(np.abs(left - right).mean() < close)
