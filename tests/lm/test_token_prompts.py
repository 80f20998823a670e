"""Prompts as tokens: how a text begins, how a continuation is tokenised, and what is left of a
prompt that is cut."""

from pathlib import Path

import numpy as np
import tiny_models
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from pipelines.lm.language_model import Prompt
from pipelines.lm.token_prompts import PromptTokenizer


def test_a_text_begins_as_the_tokenizer_begins_it():
    for like, template, bos, eos, first, empty in [
        ("GPT-2", "$A", "</s>", "</s>", [], [1]),
        ("OPT", "</s> $A", "</s>", "</s>", [1], [1]),
        ("BLOOM", "$A", "<s>", "</s>", [], [0]),
        ("LLaMA", "<s> $A", "<s>", "</s>", [0], [0]),
        ("T5", "$A </s>", None, "</s>", [], [1]),  # what it puts after a text is no part of a prompt
    ]:  # fmt: skip
        tokenizer = tiny_models.tokenizer()
        specials = [("<s>", 0), ("</s>", 1)]
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            template, special_tokens=specials
        )
        tokenizer.bos_token, tokenizer.eos_token = bos, eos
        texts = PromptTokenizer(tokenizer, Path(like), like, 128)
        plain = tokenizer("Mira Tosh", add_special_tokens=False)["input_ids"]
        tokens = texts.prompts([Prompt("Mira Tosh"), Prompt("")], np.ones(2, np.int64))
        assert tokens.tolist() == [first + plain, empty]


def test_a_continuation_has_no_space_but_its_own():
    """SentencePiece, as LLaMA 1 and 2 have it, puts one before every text by itself."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = (
        pre_tokenizers.Metaspace(prepend_scheme="always"),
        decoders.Metaspace(),
    )
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>", "<pad>"])
    bpe.train_from_iterator([*tiny_models.TEXT * 3, *["a\n\nb c\n\nd e\n\nf"] * 9], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    texts = PromptTokenizer(tokenizer, Path("llama"), "llama", 128)
    prompt = texts.prompts([Prompt("Mira Tosh")], np.ones(1, np.int64)).values.tolist()
    merged = "\n\nA"  # one token with the line break that stands before the others
    asked = [" was born in Velm", "anna", "", merged]
    tokens, counts = (rows.tolist() for rows in texts.continuations(asked))
    for continuation, ids in zip(asked[:3], tokens, strict=False):
        assert (
            prompt + ids
            == tokenizer("Mira Tosh" + continuation, add_special_tokens=False)["input_ids"]
        )
    assert tokens[3] == tokenizer(merged, add_special_tokens=False)["input_ids"]
    assert [sum(row) for row in counts] == [len(text.encode()) for text in asked]
    ids = texts.token_ids([" Velm", " was born in Velm"])
    assert {text: tokenizer.convert_ids_to_tokens(id_) for text, id_ in ids.items()} == {
        " Velm": "▁Velm"
    }


def prompts(n: int) -> list[Prompt]:
    texts = [
        text.encode("ascii", "ignore").decode()
        for text in tiny_models.words(2 * n, seed=5, at_most=90)
    ]
    return [
        Prompt(context, f"{document}\n\n" if i % 3 else "")
        for i, (context, document) in enumerate(zip(texts[:n], texts[n:], strict=True))
    ]


def test_seen_text_is_that_of_the_tokens_left(local, opened):
    whole = prompts(40)
    for max_tokens in (1, 40, 100):
        seen = local.seen(whole, max_tokens)
        tokens = local._texts.prompts(whole, [max_tokens] * len(whole))
        decoded = [local.tokenizer.decode(ids[1:]) for ids in tokens.tolist()]
        assert [prompt.document + prompt.context for prompt in seen] == decoded
        assert {seen_prompt != prompt for seen_prompt, prompt in zip(seen, whole, strict=True)} == {
            True,
            False,
        }
        for seen_prompt, prompt in zip(seen, whole, strict=True):
            assert prompt.document.startswith(seen_prompt.document)
            assert prompt.context.endswith(seen_prompt.context)
    from_whole, from_seen = local.generate(whole, 20), local.generate(local.seen(whole, 20), 20)
    agree = [a.text == b.text for a, b in zip(from_whole, from_seen, strict=True)]
    assert sum(agree) >= 36  # tokens at a cut may be others than within the text
    assert opened().seen(whole, 30) == local.seen(whole, 30) != whole
    assert opened(None).seen(whole, 30) == whole, "a server that takes texts sees all"


def test_a_prompt_fits_where_it_is_read_whole(local, opened):
    whole, continuations = prompts(60), [" the field" * (i % 9) for i in range(60)]
    reserved = local._texts.continuations(continuations)[0].lengths
    seen = local._texts.seen(whole, reserved)
    expected = [prompt == seen_prompt for prompt, seen_prompt in zip(whole, seen, strict=True)]
    assert local.fits(whole, continuations).tolist() == expected
    assert {*expected} == {True, False}
    assert opened().fits(whole, continuations).tolist() == expected


def test_new_tokens_are_counted_for_every_prompt_that_is_read(local, opened):
    """The stop string's included, the end token's not."""
    whole = prompts(12)
    for stop in ("\n", "e"):
        alone = local.generate(whole, 9, stop)
        assert [made.new_tokens for made in alone] == [
            made.new_tokens for made in opened().generate(whole, 9, stop)
        ]
        assert all(1 <= made.new_tokens <= 9 for made in alone)
        same = local.generate_mixture([whole[0]] * 3, np.log([[0.5, 0.25, 0.25]]), 9, stop)[0]
        assert same.new_tokens == 3 * alone[0].new_tokens
    assert any(made.new_tokens < 9 for made in alone)
