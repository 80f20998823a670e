"""Log-probabilities, bits per byte and multiple choice are those of lm-evaluation-harness on the same texts.

Where the two differ, the difference is meant:

- The harness tokenises context and continuation together, and scores the tokens behind as many as the context has
  alone. Longtail tokenises the continuation by itself. REPLUG sums p(y_t | d, x, y_<t) over documents, so y must have
  the same tokens after every document, and bits per byte count each byte of y once. Where a word goes on over the cut,
  the harness leaves out bytes of y or scores some of x. Where no token goes over the cut, both score the same tokens.
- The harness moves white space at the context's end to the continuation. In REPLUG the context's last tokens, white
  space or not, belong to the context (§5).
- The harness' `max_length` does not count the last token, which is predicted and not read. Longtail's `max_tokens`
  does.
- The harness cuts a long text's beginning with the token that begins it. Longtail keeps that token.
- The harness' rolling windows (`loglikelihood_rolling`) count the token that begins a text as context, and the first
  window has as many tokens as the others have with their contexts. Longtail's first window has the tokens of a
  context, and no later window sees the token that begins the text. So for the same windows, texts begin with a
  line's end: it is the harness' token that begins a text (`custom_prefix_token_id`), and the first token of Longtail's
  text, which is not predicted. The harness' `max_length` is context + stride - 1.
- The harness' last window is filled up with more context. Longtail's context has the same length everywhere. Here
  texts end with a whole window.
"""

import numpy as np
import pytest
import tiny_models

from pipelines.corpus.cut import rolling_windows
from pipelines.corpus.token_bytes import open_encoder
from pipelines.evaluation import mmlu, task_items
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.replug import ensemble
from pipelines.sources.rejects import Rejects

TOKENS = 32  # of a context, and of a continuation, cut from the Pile
SUBJECTS = ("marketing", "virology", "world_religions")


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("lm_eval.models.huggingface", reason="pip install -e '.[parity]'")


@pytest.fixture(scope="module")
def opened(library):
    def open_harness(folder, **options):
        return library.HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=1, **options)

    return open_harness


@pytest.fixture(scope="module")
def harness(opened, real_models):
    return opened(real_models / "smollm2-135m")


@pytest.fixture(scope="module")
def pile_pairs(pile, smollm) -> list[tuple[str, str]]:
    """Contexts and continuations of TOKENS of the model's tokens each, as REPLUG cuts them (§5)."""
    pairs = []
    for text in (text[:2000] for text in pile):
        tokens = smollm.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ends = [end for _, end in tokens["offset_mapping"]]
        if len(ends) >= 2 * TOKENS:
            pairs.append((text[: ends[TOKENS - 1]], text[ends[TOKENS - 1] : ends[2 * TOKENS - 1]]))
    return pairs[::25]


@pytest.fixture(scope="module")
def cut_at_words(passages) -> list[tuple[str, str]]:
    """A passage's first words, of many numbers, and those after them; one context is empty."""
    words = [passage.text.split(" ") for passage in passages[::1000]]
    pairs = [(" ".join(text[: 3 + 5 * i]), " " + " ".join(text[3 + 5 * i :][:12])) for i, text in enumerate(words)]
    return [*pairs, ("", passages[0].text[:60]), ("Столица Норвегии —", " город Осло."), ("東京は", " 日本の首都")]


def asked_of(harness, kind: str, arguments) -> list:
    from lm_eval.api.instance import Instance

    requests = [Instance(kind, {}, asked, number) for number, asked in enumerate(arguments)]
    return getattr(harness, kind)(requests, disable_tqdm=True)


def theirs(harness, pairs) -> np.ndarray:
    return np.array([log_prob for log_prob, _ in asked_of(harness, "loglikelihood", pairs)])


def their_rolling(harness, texts) -> np.ndarray:
    return np.array(asked_of(harness, "loglikelihood_rolling", [(text,) for text in texts]))


def scored(lm, pairs):
    return lm.score([Prompt(context) for context, _ in pairs], [continuation for _, continuation in pairs])


def ours(lm, pairs) -> np.ndarray:
    return np.array([of_tokens.sum(dtype=np.float64) for of_tokens in scored(lm, pairs).log_probs])


def encode(lm, text: str) -> list[int]:
    return lm.tokenizer(text, add_special_tokens=False)["input_ids"]


def same_tokens(lm, pairs) -> list[bool]:
    """Whether a pair's texts have the same tokens alone and together."""
    return [encode(lm, a) + encode(lm, b) == encode(lm, a + b) for a, b in pairs]


def check_bits_per_byte(lm, pairs, log_probs: np.ndarray) -> None:
    """Bits per byte of the continuations are the harness' of its `log_probs`."""
    from lm_eval.api.metrics import bits_per_byte as their_bits_per_byte

    items = [(log_prob, len(text.encode())) for log_prob, (_, text) in zip(log_probs, pairs, strict=True)]
    scores = scored(lm, pairs)
    nats, n_bytes = (sum(float(row.sum()) for row in rows) for rows in (scores.log_probs, scores.bytes))
    assert ensemble.bits_per_byte(-nats, n_bytes) == pytest.approx(their_bits_per_byte(items), rel=1e-4)


def test_texts_cut_between_words_have_the_same_log_probabilities(smollm, harness, cut_at_words):
    assert all(same_tokens(smollm, cut_at_words))
    np.testing.assert_allclose(ours(smollm, cut_at_words), theirs(harness, cut_at_words), rtol=1e-5)


def test_texts_cut_at_the_models_tokens_have_the_same_bits_per_byte(smollm, harness, pile_pairs):
    # The harness moves white space at a context's end to the continuation: see above.
    moved = [
        (context.rstrip(), context[len(context.rstrip()) :] + continuation) for context, continuation in pile_pairs
    ]
    pairs = [pair for pair, same in zip(moved, same_tokens(smollm, moved), strict=True) if same]
    assert len(pairs) >= 0.9 * len(pile_pairs) >= 15
    log_probs = theirs(harness, pairs)
    np.testing.assert_allclose(ours(smollm, pairs), log_probs, rtol=1e-5)
    check_bits_per_byte(smollm, pairs, log_probs)


def test_a_cut_inside_a_word_scores_the_continuations_tokens_whatever_stands_before_it(smollm, harness, passages):
    texts = [passage.text for passage in passages[5::900] if len(passage.text) > 150]
    pairs = [(text[:100], text[100:150]) for text in texts]
    assert sum(same_tokens(smollm, pairs)) < len(pairs) / 2
    tokens = [(pair, encode(smollm, pair[0]), encode(smollm, pair[1])) for pair in pairs]
    given_tokens = harness._loglikelihood_tokens(tokens, disable_tqdm=True)
    np.testing.assert_allclose(ours(smollm, pairs), [log_prob for log_prob, _ in given_tokens], rtol=1e-5)
    assert [int(row.sum()) for row in scored(smollm, pairs).bytes] == [
        len(continuation.encode()) for _, continuation in pairs
    ]
    lost = [len(encode(smollm, b)) - len(harness._encode_pair(a, b)[1]) for a, b in pairs]
    assert max(lost) > 0  # the harness scores fewer tokens, so its sum is not the continuation's


def windows(text: str, cuts: np.ndarray, ends: np.ndarray) -> list[tuple[str, str]]:
    """The context and continuation of each window, rows of tokens as from `rolling_windows`; `ends` are the tokens'."""
    data, bounds = text.encode(), np.concatenate([[0], ends])
    return [(data[b:m].decode(), data[m:e].decode()) for b, m, e in bounds[cuts].tolist()]


@pytest.fixture(scope="module")
def documents(pile, real_models) -> list[tuple[str, np.ndarray]]:
    """Texts of the Pile, and where their tokens end, in bytes; all tokens are whole characters."""
    encoder = open_encoder(real_models / "smollm2-135m")
    texts = [(text, encoder([text]).ends) for text in (text[:3000] for text in pile)]
    return [(text, ends) for text, ends in texts if len(ends) >= 400 and (ends >= 0).all()][::7]


def test_a_whole_text_has_the_same_rolling_log_likelihood(smollm, harness, documents):
    texts = [text.encode()[: ends[99 + i]].decode() for i, (text, ends) in enumerate(documents[:6])]
    cuts = [rolling_windows(ends[: 100 + i], 128, 128, first=True) for i, (_, ends) in enumerate(documents[:6])]
    assert [rows.tolist() for rows in cuts] == [[[0, 0, 100 + i]] for i in range(6)], "one window, without a context"
    log_probs = their_rolling(harness, texts)
    pairs = [("", text) for text in texts]
    np.testing.assert_allclose(ours(smollm, pairs), log_probs, rtol=1e-4)
    check_bits_per_byte(smollm, pairs, log_probs)


@pytest.mark.parametrize(("context", "stride"), [(1, 64), (32, 96)])
def test_rolling_windows_have_the_same_log_likelihood(smollm, harness, documents, monkeypatch, context, stride):
    """With the harness' context of 1 token, and with another, which its windows take as well (`context_len`)."""
    import lm_eval.utils

    longest, their_windows = context + stride - 1, lm_eval.utils.get_rolling_token_windows
    whole = longest + 2 * stride
    monkeypatch.setattr(harness, "_max_length", longest)
    monkeypatch.setattr(
        lm_eval.utils, "get_rolling_token_windows", lambda **asked: their_windows(**asked | {"context_len": context})
    )
    (begins,) = encode(smollm, "\n")
    monkeypatch.setattr(harness, "custom_prefix_token_id", begins)
    texts, pairs_of_text = [], []
    for text, ends in documents:
        cut = text.encode()[: ends[whole - 1]].decode()
        ends_begun = np.concatenate([[1], ends[:whole] + 1])
        cuts = rolling_windows(ends_begun, context, stride, first=True)
        cuts[0, 1] = 1  # the token that begins the text is not predicted
        pairs = windows(f"\n{cut}", cuts[context == 1 :], ends_begun)
        if all(same_tokens(smollm, pairs)) and len(encode(smollm, cut)) == whole:
            texts.append(cut)
            pairs_of_text.append(pairs)
    assert len(texts) >= 4
    sums = [ours(smollm, pairs).sum() for pairs in pairs_of_text[:4]]
    np.testing.assert_allclose(sums, their_rolling(harness, texts[:4]), rtol=1e-4)
    assert {len(pairs) for pairs in pairs_of_text} == {3 + (context > 1)}


def tiny(folder, bos):
    folder = tiny_models.language_model(folder, bos=bos)
    return folder, LocalModel(folder, name="tiny", dtype="fp32", batch_tokens=512, device="cpu", threads=1)


@pytest.mark.parametrize("bos", [True, False])
def test_a_text_begins_as_the_tokenizer_says(opened, bos, tmp_path):
    folder, lm = tiny(tmp_path / "lm", bos)
    texts = tiny_models.words(12, 0, at_least=4, at_most=14)
    pairs = [*((text, " Norland is Velm") for text in texts), ("", texts[0]), ("", "Velm")]
    np.testing.assert_allclose(ours(lm, pairs), theirs(opened(folder), pairs), rtol=1e-5)


def test_a_long_context_loses_its_beginning(opened, tmp_path):
    folder, lm = tiny(tmp_path / "lm", False)
    pairs = [(text, " Norland is Velm") for text in tiny_models.words(6, 0, at_least=120, at_most=150)]
    assert min(len(encode(lm, context)) for context, _ in pairs) > lm.max_tokens
    harness = opened(folder, max_length=lm.max_tokens - 1)
    np.testing.assert_allclose(ours(lm, pairs), theirs(harness, pairs), rtol=1e-5)


@pytest.fixture(scope="module")
def questions(real) -> list[task_items.Item]:
    items = mmlu.read_split(real / "mmlu", "test", Rejects(0))
    return [item for subject in SUBJECTS for item in [item for item in items if item.subject == subject][:2]]


@pytest.fixture(scope="module")
def prompts(real, questions, passages) -> list[Prompt]:
    """The questions with a solved one before them; some with a passage."""
    solved = mmlu.read_split(real / "mmlu", "dev", Rejects(0))
    shots = [
        [task_items.demonstration(item, None) for item in solved if item.subject == question.subject][:1]
        for question in questions
    ]
    documents = [[passages[i].text[:300] if i % 2 else None] for i in range(len(questions))]
    return task_items.prompts(questions, shots, documents)


def test_mmlus_choices_are_the_same(smollm, harness, prompts):
    letters = [f" {letter}" for letter in mmlu.LETTERS]
    pairs = [(prompt.document + prompt.context, letter) for prompt in prompts for letter in letters]
    expected = theirs(harness, pairs).reshape(len(prompts), len(letters))
    log_probs = smollm.next_token(prompts)[:, [smollm.token_id(letter) for letter in letters]]
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)
    choices = mmlu.answer(smollm, prompts, np.zeros((len(prompts), 1)))
    assert choices == [mmlu.LETTERS[best] for best in expected.argmax(1)]
    assert len(set(choices)) > 1


def test_choices_of_several_tokens_are_the_same(smollm, harness, questions):
    pairs = []
    for question in questions[::2]:
        lines = question.body.split("\n")
        pairs += [(f"{lines[0]}\nAnswer:", line[2:]) for line in lines[-5:-1]]
    assert max(len(encode(smollm, choice)) for _, choice in pairs) > 3
    log_probs, expected = (values.reshape(-1, 4) for values in (ours(smollm, pairs), theirs(harness, pairs)))
    np.testing.assert_allclose(log_probs, expected, rtol=1e-5)
    np.testing.assert_array_equal(log_probs.argmax(1), expected.argmax(1))
