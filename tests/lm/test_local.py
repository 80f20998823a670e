"""The local language model equals what a loop over pairs computes with transformers itself."""

import re
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest
import tiny_models
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForCausalLM,
    BertConfig,
    BertLMHeadModel,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LOGITS, LocalModel
from pipelines.lm.token_prompts import PromptTokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.language_model(tmp_path_factory.mktemp("lm"))


def open_model(folder, batch_tokens=700, dtype="fp32"):
    return LocalModel(folder, name="tiny", dtype=dtype, batch_tokens=batch_tokens, device="cpu", threads=1)


@pytest.fixture(scope="module")
def lm(folder):
    return open_model(folder)


def pairs(n=40):
    documents = ["", *[text + "\n" for text in tiny_models.words(n - 1, 1, at_most=15)]]
    contexts = tiny_models.words(n, 2, at_most=12)
    continuations = [" " + text for text in tiny_models.words(n, 3, at_most=10)]
    return [Prompt(c, d) for c, d in zip(contexts, documents, strict=True)], continuations


def naive(lm, ids, asked):
    """log p of the last `asked` of `ids`, by one full forward pass."""
    with torch.inference_mode():
        log_probs = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    return [float(log_probs[i - 1, ids[i]]) for i in range(len(ids) - asked, len(ids))]


def encode(lm, text):
    return lm.tokenizer(text, add_special_tokens=False)["input_ids"]


def test_scores_equal_a_loop_over_the_pairs(lm):
    prompts, continuations = pairs()
    scores = lm.score(prompts, continuations)
    for prompt, continuation, found in zip(prompts, continuations, scores.log_probs, strict=True):
        tail = encode(lm, continuation)
        expected = naive(lm, [0, *encode(lm, prompt.document + prompt.context), *tail], len(tail))
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert {found.dtype for found in scores.log_probs} == {np.dtype(np.float32)}


def test_scores_do_not_depend_on_batches_or_their_order(folder, lm):
    prompts, continuations = pairs()
    whole = lm.score(prompts, continuations).log_probs
    other = open_model(folder, batch_tokens=100).score(prompts[::-1], continuations[::-1]).log_probs[::-1]
    np.testing.assert_allclose(np.concatenate(whole), np.concatenate(other), atol=1e-4)


def test_repeated_scoring_gives_the_same_bytes(lm):
    prompts, continuations = pairs()
    first, second = (np.concatenate(lm.score(prompts, continuations).log_probs).tobytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "text", ["plain", " Ødegård 東京 🙂🙃", "\n\n x  ", "🙂", "é", " ", "", "Санкт-Петербург\u200d", "<s></s>x"]
)
def test_token_bytes_add_up_to_the_texts_utf8_bytes(lm, text):
    scores = lm.score([Prompt("a")] * 3, [text, " b", text])
    assert [int(b.sum()) for b in scores.bytes] == [len(text.encode()), 2, len(text.encode())]
    assert [len(b) for b in scores.bytes] == [len(p) for p in scores.log_probs]
    assert all((b >= 0).all() for b in scores.bytes)


def test_each_tokens_bytes_are_its_own(lm):
    ids = encode(lm, " The Velm. born")
    expected = [len(lm.tokenizer.decode([i]).encode()) for i in ids]
    assert lm.score([Prompt("")], [" The Velm. born"]).bytes[0].tolist() == expected


def test_an_empty_prompt_begins_with_the_models_own_first_token(folder, tmp_path):
    lm = open_model(folder)
    tail = encode(lm, "The Velm")
    np.testing.assert_allclose(
        lm.score([Prompt("")], ["The Velm"]).log_probs[0], naive(lm, [0, *tail], len(tail)), atol=1e-4
    )
    without = open_model(tiny_models.language_model(tmp_path, bos=False))
    found = without.score([Prompt(""), Prompt("Q")], ["The Velm"] * 2).log_probs
    np.testing.assert_allclose(found[0], naive(without, [0, *tail], len(tail)), atol=1e-4)
    np.testing.assert_allclose(found[1], naive(without, [*encode(without, "Q"), *tail], len(tail)), atol=1e-4)


@pytest.mark.parametrize(
    ("like", "template", "bos", "eos", "first", "empty"),
    [
        ("GPT-2", "$A", "</s>", "</s>", [], [1]),
        ("OPT", "</s> $A", "</s>", "</s>", [1], [1]),
        ("BLOOM", "$A", "<s>", "</s>", [], [0]),
        ("LLaMA", "<s> $A", "<s>", "</s>", [0], [0]),
        ("T5", "$A </s>", None, "</s>", [], [1]),  # what it puts after a text is no part of a prompt
    ],
)
def test_a_text_begins_as_the_tokenizer_begins_it(like, template, bos, eos, first, empty):
    own = tiny_models.tokenizer()
    specials = [("<s>", 0), ("</s>", 1)]
    own.backend_tokenizer.post_processor = processors.TemplateProcessing(template, special_tokens=specials)
    own.bos_token, own.eos_token = bos, eos
    texts = PromptTokenizer(own, Path(like), like, 128)
    plain = own("Mira Tosh", add_special_tokens=False)["input_ids"]
    found = texts.prompts([Prompt("Mira Tosh"), Prompt("")], np.ones(2, np.int64))
    assert [row.tolist() for row in found.split(found.values)] == [first + plain, empty]


@pytest.mark.parametrize("continuation", [" was born in Velm", "anna", ""])
def test_a_continuation_has_no_space_but_its_own(continuation):
    """SentencePiece, as LLaMA 1 and 2 have it, puts one before every text by itself."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.Metaspace(prepend_scheme="always"), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>", "<pad>"])
    bpe.train_from_iterator([*tiny_models.TEXT * 3, *["a\n\nb c\n\nd e\n\nf"] * 9], trainer)
    own = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    texts = PromptTokenizer(own, Path("llama"), "llama", 128)
    prompt = texts.prompts([Prompt("Mira Tosh")], np.ones(1, np.int64)).values.tolist()
    merged = "\n\nA"  # one token with the line break that stands before the others
    tokens, counts = (one.split(one.values) for one in texts.continuations([continuation, merged]))
    assert prompt + tokens[0].tolist() == own("Mira Tosh" + continuation, add_special_tokens=False)["input_ids"]
    assert tokens[1].tolist() == own(merged, add_special_tokens=False)["input_ids"]
    assert [part.sum() for part in counts] == [len(continuation.encode()), len(merged.encode())]
    assert own.convert_ids_to_tokens(texts.token_id(" Velm")) == "▁Velm"


def test_too_long_a_prompt_loses_the_far_end_of_the_context(lm):
    document, context = "The capital of Norland is Velm.\n", " ".join(tiny_models.words(8, 5, at_least=20))
    head, both, tail = encode(lm, document), encode(lm, document + context), encode(lm, " Velm")
    assert len(both) > lm.max_tokens
    room = lm.max_tokens - 1 - len(tail) - len(head)
    expected = naive(lm, [0, *head, *both[len(both) - room :], *tail], len(tail))
    np.testing.assert_allclose(lm.score([Prompt(context, document)], [" Velm"]).log_probs[0], expected, atol=1e-4)


def test_too_long_a_document_loses_its_end_and_leaves_the_context_half_of_the_room(lm):
    document, context = " ".join(tiny_models.words(8, 5, at_least=20)) + "\n", "Q: What is the capital of Norland? A:"
    tail, near = encode(lm, " Velm"), encode(lm, context)
    room = lm.max_tokens - 1 - len(tail)
    both = encode(lm, document + context)
    expected = naive(lm, [0, *both[: room - len(near)], *near, *tail], len(tail))
    np.testing.assert_allclose(lm.score([Prompt(context, document)], [" Velm"]).log_probs[0], expected, atol=1e-4)


def test_a_continuation_too_long_to_score_is_refused(lm):
    with pytest.raises(LongtailError, match="reads 128 at once"):
        lm.score([Prompt("a")], [" ".join(tiny_models.words(8, 5, at_least=20))])


def test_next_token_is_the_distribution_after_the_prompt(lm):
    prompts, _ = pairs(12)
    found = lm.next_token(prompts)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-4)
    for prompt, row in zip(prompts, found, strict=True):
        ids = [0, *encode(lm, prompt.document + prompt.context)]
        with torch.inference_mode():
            expected = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0, -1], -1)
        np.testing.assert_allclose(row, expected, atol=1e-4)


def test_token_id_takes_single_tokens_only(lm):
    assert lm.tokenizer.decode([lm.token_id("Q")]) == "Q"
    with pytest.raises(LongtailError, match="expected one"):
        lm.token_id(" Санкт-Петербург and more")


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(LongtailError, match=r"no config\.json"):
        open_model(tmp_path)


# ---------------------------------------------------------------------- every family of models


def gpt2(own):
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=len(own), n_positions=128, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
    )


def opt(own):
    return OPTForCausalLM(
        OPTConfig(
            vocab_size=len(own), hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=128, word_embed_proj_dim=16, init_std=0.3, pad_token_id=2, bos_token_id=0,
            eos_token_id=1,
        )
    )  # fmt: skip


def bloom(own):
    return BloomForCausalLM(
        BloomConfig(vocab_size=len(own), hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3, pad_token_id=2)
    )


def mistral(own):
    """Grouped-query attention that looks back 8 tokens only."""
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=len(own), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, sliding_window=8, initializer_range=0.3,
        )
    )  # fmt: skip


def gemma(own):
    """Its logits are capped after the output embedding."""
    return Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=len(own), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=128, sliding_window=8, initializer_range=0.3,
            final_logit_softcapping=2.0, pad_token_id=2, bos_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def neo(own):
    """Every other layer looks back 8 tokens only, which its cache does not know."""
    return GPTNeoForCausalLM(
        GPTNeoConfig(
            vocab_size=len(own), hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=128, window_size=8,
            attention_types=[[["global", "local"], 1]], initializer_range=0.3,
        )
    )  # fmt: skip


def bart(own):
    """The decoder alone, which counts padding's places in."""
    return BartForCausalLM(
        BartConfig(
            vocab_size=len(own), d_model=32, decoder_ffn_dim=48, decoder_layers=2, decoder_attention_heads=4,
            max_position_embeddings=128, init_std=0.3, pad_token_id=2, bos_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def mamba(own):
    """Recurrent: no keys and values at all."""
    model = MambaForCausalLM(
        MambaConfig(vocab_size=len(own), hidden_size=32, state_size=8, num_hidden_layers=2, time_step_rank=4)
    )
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_()
    return model


FAMILIES = [  # whether the tokenizer begins a text; whether answers go on from what their prompts begin with
    (gpt2, False, True), (opt, True, True), (bloom, False, True), (mistral, True, False), (gemma, True, False),
    (neo, False, False), (bart, True, False), (mamba, False, False),
]  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda param: param[0].__name__)
def family(request, tmp_path_factory):
    """A model of the family, its first token, texts some of which begin alike, and whether that is gone on from."""
    kind, bos, once = request.param
    folder, own = tmp_path_factory.mktemp("family"), tiny_models.tokenizer(bos=bos)
    torch.manual_seed(0)
    kind(own).save_pretrained(folder)
    own.save_pretrained(folder)
    prompts, continuations = pairs(24)
    shots = [" ".join(tiny_models.words(2, seed, at_least=12, at_most=12)) + "\n" for seed in (7, 8)]
    prompts += [Prompt(prompt.context, shots[i % 2]) for i, prompt in enumerate(prompts)] + [Prompt("")]
    continuations += [*continuations, " Velm was born"]
    again = slice(24, 30)  # the same pairs once more: all but what is asked for is shared
    return open_model(folder), [0] if bos else [], prompts + prompts[again], continuations + continuations[again], once


def plain(lm, ids):
    """Log-softmax at every position of one text, by transformers alone, nothing of it replaced."""
    reference = AutoModelForCausalLM.from_pretrained(lm.model.config.name_or_path).eval()
    with torch.inference_mode():
        return [torch.log_softmax(reference(input_ids=torch.tensor([one])).logits[0], -1).numpy() for one in ids]


def test_every_family_scores_as_a_plain_loop_does(family):
    lm, first, prompts, continuations, _ = family
    tails = [encode(lm, text) for text in continuations]
    heads = [first + encode(lm, prompt.document + prompt.context) for prompt in prompts]
    heads = [head or [lm.tokenizer.bos_token_id] for head in heads]
    found = lm.score(prompts, continuations).log_probs
    whole = plain(lm, [head + tail for head, tail in zip(heads, tails, strict=True)])
    for own, head, tail, rows in zip(found, heads, tails, whole, strict=True):
        np.testing.assert_allclose(own, rows[range(len(head) - 1, len(head + tail) - 1), tail], atol=1e-5)
    for own, rows in zip(lm.next_token(prompts), plain(lm, heads), strict=True):
        np.testing.assert_allclose(own, rows[-1], atol=1e-5)


def test_every_family_generates_alike_with_a_prefix_read_once(family):
    lm, _, prompts, _, once = family
    begun = prompts[24:48:2]  # the same document
    alone = [lm.generate([prompt], 6)[0] for prompt in begun]
    with counted(lm) as shapes:
        together = lm.generate(begun, 6)
    assert (shapes[0][0] == 1) == once
    assert [one.text for one in together] == [one.text for one in alone]
    np.testing.assert_allclose([one.mean_log_prob for one in together], [one.mean_log_prob for one in alone], atol=1e-5)


def saved(model, folder):
    model.save_pretrained(folder)
    tiny_models.tokenizer().save_pretrained(folder)
    return folder


def test_inside_its_window_a_model_goes_on_from_a_prefix_read_once(tmp_path):
    torch.manual_seed(0)
    model = mistral(tiny_models.tokenizer())
    model.config.sliding_window = 120
    lm = open_model(saved(model, tmp_path))
    prompts = [Prompt(text, "The capital of Norland is Velm. " * 4) for text in tiny_models.words(6, 2, at_most=6)]
    with counted(lm) as shapes:
        together = lm.generate(prompts, 6)
    assert shapes[0][0] == 1
    assert [one.text for one in together] == [lm.generate([prompt], 6)[0].text for prompt in prompts]


def test_a_long_text_does_not_change_how_a_short_one_beside_it_is_read(tmp_path):
    """Phi-3's way to long texts: other frequencies for all of a batch that has one."""
    torch.manual_seed(0)
    factors = {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4, "original_max_position_embeddings": 48}
    config = LlamaConfig(
        vocab_size=len(tiny_models.tokenizer()), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128, initializer_range=0.3,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, **factors},
    )  # fmt: skip
    lm = open_model(saved(LlamaForCausalLM(config), tmp_path))
    prompts = [Prompt("Mira Tosh was"), Prompt(" ".join(tiny_models.words(2, 5, at_least=40)))]
    alone, _ = (lm.score([prompt], [" born in Velm"]).log_probs[0] for prompt in prompts)
    np.testing.assert_allclose(lm.score(prompts, [" born in Velm"] * 2).log_probs[0], alone, atol=1e-5)


def test_a_model_that_looks_ahead_is_refused(tmp_path):
    config = BertConfig(
        vocab_size=len(tiny_models.tokenizer()), hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=128, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    with pytest.raises(LongtailError, match=r"BertLMHeadModel.*expected a causal language model"):
        open_model(saved(BertLMHeadModel(config), tmp_path))


def test_numbers_that_are_none_agree_with_nothing_and_what_a_model_can_not_is_said(folder, monkeypatch):
    whole = LlamaForCausalLM.forward

    def undefined(self, *given, **named):
        found = whole(self, *given, **named)
        if found.logits.shape[0] > 1:  # as where all that a padded row looks at is masked
            found.logits[:] = float("nan")
        return found

    def alone(self, *given, **named):
        found = whole(self, *given, **named)
        return found if found.logits.shape[0] == 1 else found.logits[:, 1000]

    monkeypatch.setattr(LlamaForCausalLM, "forward", undefined)
    with pytest.raises(LongtailError, match="other log-probs where something follows"):
        open_model(folder)
    monkeypatch.setattr(LlamaForCausalLM, "forward", alone)
    with pytest.raises(LongtailError, match=r"can't read .* together \(IndexError: .*\); name another"):
        open_model(folder)


def test_a_checkpoint_without_some_of_the_models_weights_is_refused(tmp_path):
    """transformers would draw them at random."""
    LlamaModel(LlamaConfig(vocab_size=400, hidden_size=32, num_hidden_layers=1, intermediate_size=48)).save_pretrained(
        tmp_path
    )
    tiny_models.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(LongtailError, match=r"no weights for 1 of the parameters of LlamaForCausalLM, lm_head.weight"):
        open_model(tmp_path)


@contextmanager
def counted(lm):
    """The shapes of all token ids that the model reads meanwhile, in their order."""
    shapes = []
    layer = lm.model.get_input_embeddings()
    hook = layer.register_forward_pre_hook(lambda _, given: shapes.append(tuple(given[0].shape)))
    try:
        yield shapes
    finally:
        hook.remove()


# ---------------------------------------------------------------------- what is read, and how much memory it takes


def test_what_prompts_share_is_read_once(lm):
    shots = " ".join(tiny_models.words(3, 9, at_least=10, at_most=10)) + "\n"
    prompts = [Prompt(text, shots) for text in tiny_models.words(30, 2, at_most=4)]
    with counted(lm) as shapes:
        lm.score(prompts, [" Velm"] * 30)
        lm.next_token(prompts)
    read = sum(rows * columns for rows, columns in shapes)
    asked = 2 * sum(len(encode(lm, shots + prompt.context)) for prompt in prompts)
    assert read < asked / 2


def test_texts_that_share_little_are_read_in_one_pass(lm):
    prompts = [Prompt(text) for text in tiny_models.words(8, 2, at_least=5, at_most=12)]
    with counted(lm) as shapes:
        lm.score(prompts, [" Velm"] * 8)
    assert len(shapes) == 1


def test_memory_is_bounded_whatever_the_vocabulary(tmp_path):
    """Logits of all 40 pairs' continuations at once would be 40 * 26 * 250,000 * 4 bytes: 1 GB."""
    own = tiny_models.tokenizer()
    size = 250_000
    torch.manual_seed(0)
    gemma(range(size)).save_pretrained(tmp_path)  # whose logits are more than an embedding of the last hidden state
    own.save_pretrained(tmp_path)
    lm = open_model(tmp_path, batch_tokens=40 * 64)
    prompts, continuations = pairs(40)
    with largest() as seen:
        lm.score(prompts, [text * 3 for text in continuations])
    weights = size * 32
    assert weights <= seen[0] <= LOGITS
    if (peak := Path("/proc/self/clear_refs")).exists():
        lm.score(prompts, [text * 3 for text in continuations])  # the room of smaller arrays is kept once it was had
        before = psutil.Process().memory_info().rss
        peak.write_text("5")  # the peak counts from now
        lm.score(prompts, [text * 3 for text in continuations])
        (most,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        assert int(most) * 1024 - before < 8 * 4 * LOGITS, "some arrays of so many logits, and no more"


@contextmanager
def largest():
    """The most numbers that any tensor has which an operation of torch makes meanwhile."""

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            seen[0] = max([seen[0], *(one.numel() for one in tree_leaves(result) if isinstance(one, torch.Tensor))])
            return result

    seen = [0]
    with Watch():
        yield seen


# ---------------------------------------------------------------------- number formats


def test_bf16_is_compared_with_fp32_and_refused_where_it_differs(tmp_path, capsys):
    smooth = tiny_models.language_model(tmp_path / "smooth", scale=0.02)
    prompts, continuations = pairs(8)
    expected = np.concatenate(open_model(smooth).score(prompts, continuations).log_probs)
    capsys.readouterr()
    lm = open_model(smooth, dtype="bf16")
    assert "log-probs in bf16 are 0.0" in capsys.readouterr().out
    assert lm.model.dtype == torch.bfloat16
    np.testing.assert_allclose(np.concatenate(lm.score(prompts, continuations).log_probs), expected, atol=0.05)
    rough = tiny_models.language_model(tmp_path / "rough", scale=1.0)
    with pytest.raises(LongtailError, match=r"in bf16 are \d.*set its dtype to fp32"):
        open_model(rough, dtype="bf16")


def test_int8_scores_about_as_fp32_does(tmp_path):
    pytest.importorskip("bitsandbytes", reason="an optional extra: pip install 'longtail[large]'")
    folder = tiny_models.language_model(tmp_path, scale=0.05)
    prompts, continuations = pairs(8)
    expected = np.concatenate(open_model(folder).score(prompts, continuations).log_probs)
    lm = open_model(folder, dtype="int8")
    assert {weight.dtype for weight in lm.model.model.layers[0].mlp.parameters()} == {torch.int8}
    np.testing.assert_allclose(np.concatenate(lm.score(prompts, continuations).log_probs), expected, atol=0.05)


def test_int8_without_its_library_says_what_to_install(tmp_path):
    if find_spec("bitsandbytes"):
        pytest.skip("bitsandbytes is installed")
    with pytest.raises(LongtailError, match=r"longtail\[large\]"):
        open_model(tiny_models.language_model(tmp_path), dtype="int8")
