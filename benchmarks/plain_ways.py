"""What a user would write for a language model's works, with torch and transformers alone."""

import numpy as np
import torch

from pipelines.lm.language_model import Prompt


@torch.inference_mode()
def scores(
    model, tokenizer, at_once: int, prompts: list[Prompt], continuations: list[str]
) -> np.ndarray:
    """The log-probs of all continuations' tokens, (tokens,), from logits at all positions.

    `at_once` texts are a batch, padded on the right.
    """
    log_probs = []
    for start in range(0, len(prompts), at_once):
        batch = slice(start, start + at_once)
        log_probs += batch_scores(model, tokenizer, prompts[batch], continuations[batch])
    return np.concatenate(log_probs)


def batch_scores(
    model, tokenizer, prompts: list[Prompt], continuations: list[str]
) -> list[np.ndarray]:
    """The log-probs of each continuation's tokens."""
    read = tokenizer([prompt.document + prompt.context for prompt in prompts])["input_ids"]
    predicted = tokenizer(continuations, add_special_tokens=False)["input_ids"]
    texts = [torch.tensor(left + right) for left, right in zip(read, predicted, strict=True)]
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence(list(map(torch.ones_like, texts)), batch_first=True)

    logits = model(input_ids=ids, attention_mask=mask).logits
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    of_tokens = log_probs[:, :-1].gather(2, ids[:, 1:, None])[..., 0]

    rows = []
    for row, prompt, text in zip(of_tokens, read, texts, strict=True):
        rows.append(row[len(prompt) - 1 : len(text) - 1].numpy())
    return rows


@torch.inference_mode()
def write_batch(model, tokenizer, prompts: list[Prompt], new_tokens: int) -> list[str]:
    """Texts after all prompts, in one batch that is padded on the left."""
    texts = [prompt.document + prompt.context for prompt in prompts]
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    generated = model.generate(
        **encoded,
        max_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    n_read = encoded["input_ids"].shape[1]
    return tokenizer.batch_decode(generated[:, n_read:], skip_special_tokens=True)
