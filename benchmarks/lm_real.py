"""A language model of real weights on real texts, beside transformers by itself: scoring, and generating short answers.

    .venv/bin/python -m benchmarks.lm_real

SmolLM2-135M of $LONGTAIL_REAL_MODELS reads PopQA's questions and Wikipedia's passages of $LONGTAIL_REAL, on one core.
Scored are the halves of passages, each after its first half with other passages before it. Answers are to questions
with three passages and four demonstrations, each with its own passage. Both ways compute in the same number format, and
must find the same; of bf16 the log-probs are compared.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import measure
from benchmarks.lm import DTYPES, open_model, peak, scores
from benchmarks.measure import Row
from pipelines.answering.prompts import Questions, demonstrations, question_prompt
from pipelines.lm.language_model import Prompt

DOCUMENTS, SHOTS, NEW_TOKENS = 10, 4, 16
NEVER = "\0"  # a stop string that the model does not say: both ways write as many tokens
SCORING, ANSWERS = "scoring, SmolLM2-135M", "short answers, 3 passages, 4 demonstrations, SmolLM2-135M"
LOOP, BATCH, GENERATE = (
    "transformers, a pair at a time",
    "transformers, padded batches",
    "transformers' generate, batched",
)


def read(folder: Path, characters: int | None) -> tuple[dict[str, list[str]], list[dict[str, str]]]:
    """Passages by their title, each as far as `characters`, and PopQA's questions whose subjects have three of them."""
    pages: dict[str, list[str]] = {}
    with gzip.open(folder / "psgs_w100.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            pages.setdefault(row["title"], []).append(row["text"][:characters])
    with (folder / "popQA_covered.tsv").open(encoding="utf-8", newline="") as file:
        asked = [row for row in csv.DictReader(file, delimiter="\t") if len(pages.get(row["s_wiki_title"], ())) > 2]
    return pages, asked


def pairs(passages: list[str], queries: int, documents: int) -> tuple[list[Prompt], list[str]]:
    """Each query is a passage: its first half is the context, its second the continuation."""
    prompts, continuations = [], []
    for query in passages[:queries]:
        middle = query.index(" ", len(query) // 2)
        for document in passages[queries : queries + documents]:
            prompts.append(Prompt(query[:middle], f"{document}\n"))
            continuations.append(query[middle:])
    return prompts, continuations


def questions(pages: dict[str, list[str]], asked: list[dict[str, str]], count: int) -> list[Prompt]:
    columns = {name: [row[name] for row in asked] for name in ("id", "prop", "question", "obj")}
    known = Questions(columns["id"], np.array(columns["prop"]), columns["question"], columns["obj"])
    positions = [*range(0, len(asked), max(1, len(asked) // count))][:count]
    of = [pages[row["s_wiki_title"]] for row in asked]
    drawn = demonstrations(0, "popqa", known, positions, SHOTS)
    return [
        question_prompt(
            asked[i]["question"],
            "\n".join(of[i][:3]),
            [(asked[shot]["question"], asked[shot]["obj"], of[shot][0]) for shot in shots],
        )
        for i, shots in zip(positions, drawn, strict=True)
    ]


@torch.inference_mode()
def plain_scores(model, tokenizer, at_once: int, prompts: list[Prompt], continuations: list[str]) -> np.ndarray:
    """The log-probs of all continuations; texts are padded on the right."""
    found = []
    for start in range(0, len(prompts), at_once):
        some = range(start, min(start + at_once, len(prompts)))
        read = [tokenizer(prompts[i].document + prompts[i].context)["input_ids"] for i in some]
        wanted = [tokenizer(continuations[i], add_special_tokens=False)["input_ids"] for i in some]
        ends = [len(a) + len(b) for a, b in zip(read, wanted, strict=True)]
        ids, mask = torch.zeros(2, len(ends), max(ends), dtype=torch.int64)
        for row, (a, b) in enumerate(zip(read, wanted, strict=True)):
            ids[row, : ends[row]], mask[row, : ends[row]] = torch.tensor(a + b), 1
        log_probs = torch.log_softmax(model(input_ids=ids, attention_mask=mask).logits.float(), dim=-1)
        chosen = log_probs[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
        found += [chosen[i, len(a) - 1 : end - 1].numpy() for i, (a, end) in enumerate(zip(read, ends, strict=True))]
    return np.concatenate(found)


@torch.inference_mode()
def plain_answers(model, tokenizer, prompts: list[Prompt]) -> list[str]:
    """All prompts in one batch, padded on the left, NEW_TOKENS each."""
    given = tokenizer([prompt.document + prompt.context for prompt in prompts], padding=True, return_tensors="pt")
    made = model.generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=tokenizer.pad_token_id)
    return tokenizer.batch_decode(made[:, given["input_ids"].shape[1] :], skip_special_tokens=True)


def compare(folder: Path, real: Path, dtype: str, queries: int, count: int, quick: bool) -> list[Row]:
    pages, asked = read(real, 60 if quick else None)
    prompts, continuations = pairs([texts[0] for texts in pages.values()], queries, 2 if quick else DOCUMENTS)
    to_answer = questions(pages, asked, count)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    lm = open_model(folder, dtype)

    def answers() -> list[str]:
        return [one.text for one in lm.generate(to_answer, NEW_TOKENS, NEVER)]

    works: dict[str, Callable] = {
        LOOP: partial(plain_scores, model, tokenizer, 1, prompts, continuations),
        BATCH: partial(plain_scores, model, tokenizer, DOCUMENTS, prompts, continuations),
        "scores": partial(scores, lm, prompts, continuations),
        GENERATE: partial(plain_answers, model, tokenizer, to_answer),
        "answers": answers,
    }
    run = measure.best({name: partial(measure.timed, work) for name, work in works.items()}, 1 if quick else 2)
    close = {"fp32": 1e-4, "bf16": 0.1}[dtype]
    for peer in (LOOP, BATCH):
        assert np.abs(run["scores"].result - run[peer].result).mean() < close, f"{peer} differs"
    said = [[text.strip() for text in run[way].result] for way in (GENERATE, "answers")]
    assert said[0] == said[1] or dtype == "bf16", f"other answers: {said}"  # in bf16, padding changes some
    weights = sum(weight.numel() for weight in model.model.layers.parameters())  # without logits
    read_tokens = sum(map(len, tokenizer([p.document + p.context for p in to_answer])["input_ids"]))
    scored = sum(
        map(
            len,
            tokenizer([p.document + p.context + c for p, c in zip(prompts, continuations, strict=True)])["input_ids"],
        )
    )
    limit = {"limit": f"products in {dtype}", "most": peak(dtype) / (2 * weights), "memory": False}
    made = [
        measure.row(f"{SCORING}, {dtype}", peer, "tokens", scored, run[peer], run["scores"], **limit)
        for peer in (LOOP, BATCH)
    ]
    return [
        *made,
        measure.row(f"{ANSWERS}, {dtype}", GENERATE, "tokens", read_tokens, run[GENERATE], run["answers"], **limit),
    ]


def rows(quick: bool = False, queries: int = 2, prompts: int = 6) -> list[Row]:
    folder, real = measure.real("smollm2-135m", "LONGTAIL_REAL_MODELS"), measure.real("passages")
    if missing := (not folder and measure.NO_WEIGHTS) or (not real and measure.NO_FILES):
        return [
            Row(what, peer, missing=missing) for what, peer in ((SCORING, LOOP), (SCORING, BATCH), (ANSWERS, GENERATE))
        ]
    with measure.in_folder():
        if quick:
            return compare(folder, real, "fp32", 1, 1, quick)
        return [row for dtype in DTYPES for row in compare(folder, real, dtype, queries, prompts, quick)]


if __name__ == "__main__":
    measure.main(rows)
