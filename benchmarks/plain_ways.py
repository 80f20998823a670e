"""What a user would write for the models' works, with torch and transformers alone.

All functions work on the device and in the number format of the model that they are handed.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from pipelines.lm.language_model import Prompt
from pipelines.params.params import LSR

TEXTS_AT_ONCE = 256
PROMPTS_AT_ONCE = 32
QUERIES_AT_ONCE = 256


def mean_vectors(
    model, tokenizer, texts: Sequence[str], max_tokens: int | None = None
) -> torch.Tensor:
    """Means of the last hidden states of texts in one padded batch, (texts, dim)."""
    encoded = tokenizer(
        list(texts), padding=True, truncation=True, max_length=max_tokens, return_tensors="pt"
    )
    encoded = encoded.to(model.device)
    hidden = model(**encoded).last_hidden_state
    mask = encoded["attention_mask"][..., None]
    return (hidden * mask).sum(1) / mask.sum(1)


@torch.inference_mode()
def embed(model, tokenizer, texts: list[str]) -> np.ndarray:
    """Vectors of texts as they come, (texts, dim) float32."""
    batches = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        batch = texts[start : start + TEXTS_AT_ONCE]
        vectors = mean_vectors(model, tokenizer, batch)
        batches.append(vectors.float().cpu())
    return torch.cat(batches).numpy()


def sentence_transformers(
    folder: Path, texts: list[str], device: str, dtype: torch.dtype
) -> Callable[[], np.ndarray] | None:
    """How sentence-transformers embeds the texts; None if it is not installed."""
    if not find_spec("sentence_transformers"):
        return None
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": dtype})

    def encode() -> np.ndarray:
        vectors = model.encode(texts, batch_size=TEXTS_AT_ONCE, convert_to_tensor=True)
        return vectors.float().cpu().numpy()

    return encode


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

    ids = ids.to(model.device)
    logits = model(input_ids=ids, attention_mask=mask.to(model.device)).logits
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    of_tokens = log_probs[:, :-1].gather(2, ids[:, 1:, None])[..., 0].cpu()

    rows = []
    for row, prompt, text in zip(of_tokens, read, texts, strict=True):
        rows.append(row[len(prompt) - 1 : len(text) - 1].numpy())
    return rows


@torch.inference_mode()
def write_batch(model, tokenizer, prompts: list[Prompt], new_tokens: int) -> list[str]:
    """Texts after all prompts, in one batch that is padded on the left."""
    texts = [prompt.document + prompt.context for prompt in prompts]
    encoded = tokenizer(texts, padding=True, return_tensors="pt").to(model.device)
    generated = model.generate(
        **encoded,
        max_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    n_read = encoded["input_ids"].shape[1]
    return tokenizer.batch_decode(generated[:, n_read:], skip_special_tokens=True)


def answers(model, tokenizer, prompts: list[Prompt], new_tokens: int) -> list[str]:
    """Answers by transformers' generate, in batches of prompts of about one length."""
    lengths = [len(prompt.document) + len(prompt.context) for prompt in prompts]
    order = np.argsort(lengths, kind="stable")
    texts = [""] * len(prompts)
    for start in range(0, len(order), PROMPTS_AT_ONCE):
        places = order[start : start + PROMPTS_AT_ONCE]
        batch = [prompts[place] for place in places]
        written = write_batch(model, tokenizer, batch, new_tokens)
        for place, text in zip(places, written, strict=True):
            texts[place] = text.strip()
    return texts


@torch.inference_mode()
def mixture_answer(model, tokenizer, prompts: list[Prompt], new_tokens: int) -> str:
    """One answer under the mean of the probabilities after each prompt, in one padded batch."""
    texts = [prompt.document + prompt.context for prompt in prompts]
    encoded = tokenizer(texts, padding=True, return_tensors="pt").to(model.device)
    tokens = encoded["input_ids"]
    mask = encoded["attention_mask"]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = None
    answer: list[int] = []
    for _ in range(new_tokens):
        output = model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        probabilities = output.logits[:, -1].float().softmax(1)
        token = int(probabilities.mean(0).argmax())
        if token == tokenizer.eos_token_id:
            break
        answer.append(token)
        tokens = torch.full_like(tokens[:, :1], token)
        mask = torch.cat([mask, torch.ones_like(tokens)], dim=1)
        positions = positions[:, -1:] + 1
    return tokenizer.decode(answer).strip()


class Training:
    """Steps of LSR: all texts of a step are embedded in one padded batch, in autocast for bf16."""

    def __init__(self, folder: Path, device: str, dtype: torch.dtype, lsr: LSR) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32)
        self.model = model.to(device).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lsr.learning_rate)
        self.device = device
        self.dtype = dtype
        self.lsr = lsr

    def step(self, queries: Sequence[str], documents: Sequence[str], targets: np.ndarray) -> float:
        """The loss of a step; `targets` are (queries, k), and `documents` their k documents."""
        is_half = self.dtype == torch.bfloat16
        with torch.autocast(self.device, torch.bfloat16, enabled=is_half):
            document_vectors = mean_vectors(self.model, self.tokenizer, documents)
            query_vectors = mean_vectors(self.model, self.tokenizer, queries)

        rows = document_vectors.float().view(*targets.shape, -1)
        similarities = torch.einsum("bd,bkd->bk", query_vectors.float(), rows)
        scores = torch.from_numpy(targets).to(similarities)
        log_p = (similarities / self.lsr.gamma).log_softmax(dim=1)
        log_q = (scores / self.lsr.beta).log_softmax(dim=1)
        loss = (log_q.exp() * (log_q - log_p)).sum(1).mean()

        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


@torch.inference_mode()
def search(held: torch.Tensor, queries: np.ndarray, k: int) -> np.ndarray:
    """The k best rows of `held` (documents, dim) for each query, (queries, k)."""
    best = []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        batch = torch.from_numpy(queries[start : start + QUERIES_AT_ONCE])
        similarities = batch.to(held) @ held.T
        best.append(similarities.topk(k, dim=1).indices.cpu())
    return torch.cat(best).numpy()
