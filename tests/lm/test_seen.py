"""What a model saw of a prompt: the very text of the tokens that were left."""

import numpy as np
import tiny_models
from completions_server import settings

from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Prompt


def prompts(n: int) -> list[Prompt]:
    texts = [text.encode("ascii", "ignore").decode() for text in tiny_models.words(2 * n, seed=5, at_most=90)]
    return [
        Prompt(context, f"{document}\n\n" if i % 3 else "")
        for i, (context, document) in enumerate(zip(texts[:n], texts[n:], strict=True))
    ]


def test_seen_text_is_that_of_the_tokens_that_are_left(local):
    given = prompts(60)
    for max_tokens in (1, 40, 100):
        seen = local.seen(given, max_tokens)
        tokens = local._texts.prompts(given, [max_tokens] * len(given))
        decoded = [local.tokenizer.decode(own[1:]) for own in tokens.split(tokens.values)]
        assert [one.document + one.context for one in seen] == decoded
        cut = [left != whole for left, whole in zip(seen, given, strict=True)]
        assert any(cut)
        assert not all(cut)
        for left, whole in zip(seen, given, strict=True):
            assert whole.document.startswith(left.document)
            assert whole.context.endswith(left.context)


def test_a_cut_prompt_is_answered_as_the_text_that_is_left_of_it(local):
    given = prompts(40)
    whole, left = local.generate(given, 20), local.generate(local.seen(given, 20), 20)
    agree = [a.text == b.text for a, b in zip(whole, left, strict=True)]
    assert sum(agree) >= 36  # tokens at a cut may be others than within the text


def test_a_server_that_takes_texts_sees_all_and_one_that_takes_tokens_what_the_local_model_does(
    tiny, server, local, tmp_path
):
    given = prompts(20)
    with_tokenizer = HttpModel(tiny, settings(server.url, tiny), None, tmp_path / "a")
    assert with_tokenizer.seen(given, 30) == local.seen(given, 30) != given
    assert HttpModel(tiny, settings(server.url), None, tmp_path / "b").seen(given, 30) == given


def test_new_tokens_are_counted_for_every_prompt_that_is_read(local, tiny, server, tmp_path):
    """The stop string's included, the end token's not."""

    given = prompts(12)
    for stop in ("\n", " "):
        alone = local.generate(given, 9, stop)
        there = HttpModel(tiny, settings(server.url, tiny), None, tmp_path / f"c{len(stop)}{ord(stop)}").generate(
            given, 9, stop
        )
        assert [one.new_tokens for one in alone] == [one.new_tokens for one in there]
        assert all(1 <= one.new_tokens <= 9 for one in alone)
        same = local.generate_mixture([given[0]] * 3, np.log([[0.5, 0.25, 0.25]]), 9, stop)[0]
        assert same.new_tokens == 3 * alone[0].new_tokens
    assert any(one.new_tokens < 9 for one in alone)
