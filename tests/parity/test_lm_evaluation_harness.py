"""Log-probabilities, bits per byte and multiple choice are those of lm-evaluation-harness on the
same texts.

Where the two differ, the difference is meant:

- The harness tokenises context and continuation together, and scores the tokens behind as many as the context has
  alone. Longtail tokenises the continuation by itself. REPLUG sums p(y_t | d, x, y_<t) over documents, so y must have
  the same tokens after every document, and bits per byte count each byte of y once. Where a word goes on over the cut,
  the harness leaves out bytes of y or scores some of x. Where no token goes over the cut, both score the same tokens.
- The harness moves white space at the context's end to the continuation. In REPLUG the context's last tokens, white
  space or not, belong to the context (§5).
- The harness' `max_length` does not count the last token, which is predicted and not read. Longtail's `max_tokens`
  does. The harness cuts a long text's beginning with the token that begins it. Longtail keeps that token.
"""

import numpy as np
import pytest

from pipelines.answering.answer_letters import answer_by_letter
from pipelines.answering.prompts import language_of, question_prompt
from pipelines.lm.language_model import Prompt
from pipelines.questions import mmlu
from pipelines.questions.matching import LETTERS
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.sources.rejects import Rejects

TOKENS = 32  # of a context, and of a continuation, cut from the Pile
SUBJECTS = ("marketing", "virology", "world_religions")


@pytest.fixture(scope="module")
def harness(real_models):
    library = pytest.importorskip("lm_eval.models.huggingface", reason="pip install -e '.[parity]'")
    folder = str(real_models / "smollm2-135m")
    return library.HFLM(pretrained=folder, dtype="float32", device="cpu", batch_size=1)


def theirs(harness, pairs) -> np.ndarray:
    from lm_eval.api.instance import Instance

    requests = [Instance("loglikelihood", {}, asked, number) for number, asked in enumerate(pairs)]
    return np.array(
        [log_prob for log_prob, _ in harness.loglikelihood(requests, disable_tqdm=True)]
    )


def scored(lm, pairs):
    return lm.score(
        [Prompt(context) for context, _ in pairs], [continuation for _, continuation in pairs]
    )


def ours(lm, pairs) -> np.ndarray:
    return np.array([of_tokens.sum(dtype=np.float64) for of_tokens in scored(lm, pairs).log_probs])


def encode(lm, text: str) -> list[int]:
    return lm.tokenizer(text, add_special_tokens=False)["input_ids"]


def same_tokens(lm, pairs) -> list[bool]:
    """Whether a pair's texts have the same tokens alone and together."""
    return [encode(lm, a) + encode(lm, b) == encode(lm, a + b) for a, b in pairs]


def test_texts_cut_between_words_have_the_same_log_probabilities(smollm, harness, passages):
    """A passage's first words, of many numbers, and those after them; one context is empty."""
    words = [passage.text.split(" ") for passage in passages[::1000]]
    pairs = [
        (" ".join(text[: 3 + 5 * i]), " " + " ".join(text[3 + 5 * i :][:12]))
        for i, text in enumerate(words)
    ]
    pairs += [
        ("", passages[0].text[:60]),
        ("Столица Норвегии —", " город Осло."),
        ("東京は", " 日本の首都"),
    ]
    assert all(same_tokens(smollm, pairs))
    np.testing.assert_allclose(ours(smollm, pairs), theirs(harness, pairs), rtol=1e-5)


def test_texts_cut_at_tokens_have_the_same_bits_per_byte(smollm, harness, pile):
    """Contexts and continuations of TOKENS of the model's tokens each, as REPLUG cuts them (§5)."""
    from lm_eval.api.metrics import bits_per_byte as their_bits_per_byte

    moved = []
    for text in (text[:2000] for text in pile):
        tokens = smollm.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ends = [end for _, end in tokens["offset_mapping"]]
        if len(ends) >= 2 * TOKENS:
            # the harness moves its white space to the continuation
            context = text[: ends[TOKENS - 1]].rstrip()
            moved.append((context, text[len(context) : ends[2 * TOKENS - 1]]))
    moved = moved[::25]
    pairs = [pair for pair, same in zip(moved, same_tokens(smollm, moved), strict=True) if same]
    assert len(pairs) >= 0.9 * len(moved) >= 15
    log_probs, scores = theirs(harness, pairs), scored(smollm, pairs)
    np.testing.assert_allclose(ours(smollm, pairs), log_probs, rtol=1e-5)
    items = [
        (log_prob, len(text.encode())) for log_prob, (_, text) in zip(log_probs, pairs, strict=True)
    ]
    nats, n_bytes = (
        sum(float(row.sum()) for row in rows) for rows in (scores.log_probs, scores.bytes)
    )
    assert bits_per_byte(-nats, n_bytes) == pytest.approx(their_bits_per_byte(items), rel=1e-4)


def test_a_cut_inside_a_word_scores_the_continuation(smollm, harness, passages):
    texts = [passage.text for passage in passages[5::900] if len(passage.text) > 150]
    pairs = [(text[:100], text[100:150]) for text in texts]
    assert sum(same_tokens(smollm, pairs)) < len(pairs) / 2
    tokens = [(pair, encode(smollm, pair[0]), encode(smollm, pair[1])) for pair in pairs]
    given_tokens = harness._loglikelihood_tokens(tokens, disable_tqdm=True)
    np.testing.assert_allclose(
        ours(smollm, pairs), [log_prob for log_prob, _ in given_tokens], rtol=1e-5
    )
    assert [int(row.sum()) for row in scored(smollm, pairs).bytes] == [
        len(continuation.encode()) for _, continuation in pairs
    ]
    lost = [len(encode(smollm, b)) - len(harness._encode_pair(a, b)[1]) for a, b in pairs]
    assert max(lost) > 0  # the harness scores fewer tokens, so its sum is not the continuation's


def test_mmlus_choices_are_the_same(smollm, harness, real, passages):
    """Questions with a solved one before them; some with a passage."""
    asked, solved = (mmlu.read_split(real / "mmlu", split, Rejects(0)) for split in ("test", "dev"))
    asked, solved = (
        [row for name in SUBJECTS for row in rows if row["relation"] == name]
        for rows in (asked, solved)
    )
    first = [next(row for row in asked if row["relation"] == name) for name in SUBJECTS]
    spoken = language_of("mmlu", "en")
    prompts = []
    for i, row in enumerate(first + asked[1:4]):
        shot = next(other for other in solved if other["relation"] == row["relation"])
        shots = [(shot["question"], shot["possible_answers"][0], None)]
        passage = passages[i].text[:300] if i % 2 else None
        prompts.append(question_prompt(row["question"], passage, shots, spoken))
    letters = [f" {letter}" for letter in LETTERS]
    pairs = [(prompt.document + prompt.context, letter) for prompt in prompts for letter in letters]
    expected = theirs(harness, pairs).reshape(len(prompts), len(letters))
    log_probs = smollm.choose(prompts, letters)
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)
    made = answer_by_letter(smollm, prompts, np.zeros((len(prompts), 1)))
    choices = [generation.text for generation in made]
    assert choices == [LETTERS[best] for best in expected.argmax(1)]
    assert len(set(choices)) > 1
