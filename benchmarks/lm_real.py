"""A language model of real weights on real texts, beside transformers and llama.cpp: scoring, and short answers.

    .venv/bin/python -m benchmarks.lm_real

SmolLM2-135M of $LONGTAIL_REAL_MODELS reads PopQA's questions and Wikipedia's passages of $LONGTAIL_REAL, on one core.
Scored are the halves of passages, each after its first half with other passages before it. Answers are to prompts as
an ensemble has them: three for each question, with the same four demonstrations and another passage each. All ways get
the same token ids, and find the same if they compute in the same number format; of bf16 the log-probs are compared.
llama.cpp's smaller formats stand beside our bf16, with how far each is from fp32.
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

from benchmarks import llama_cpp_peer, measure
from benchmarks.lm import DTYPES, open_model, peak, scores
from benchmarks.measure import Row
from pipelines.answering.prompts import Questions, demonstrations, question_prompt
from pipelines.lm.language_model import Prompt

DOCUMENTS, PASSAGES, SHOTS, NEW_TOKENS = 10, 3, 4, 16
NEVER = "\0"  # a stop string that the model does not say: both ways write as many tokens
SCORING, ANSWERS = "scoring, SmolLM2-135M", "short answers, 4 demonstrations with passages, SmolLM2-135M"
LOOP, BATCH, GENERATE = (
    "transformers, a pair at a time",
    "transformers, padded batches",
    "transformers' generate, batched",
)
FORMATS = {"fp32": ["f32"], "bf16": ["bf16", "q8_0", "q4_0"]}  # of llama.cpp's weights, beside ours


def read(folder: Path, characters: int | None) -> tuple[dict[str, list[str]], list[dict[str, str]]]:
    """Passages by title, each as far as `characters`, and PopQA's questions whose subjects have PASSAGES of them."""
    pages: dict[str, list[str]] = {}
    with gzip.open(folder / "psgs_w100.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            pages.setdefault(row["title"], []).append(row["text"][:characters])
    with (folder / "popQA_covered.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        asked = [row for row in rows if len(pages.get(row["s_wiki_title"], ())) >= PASSAGES]
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
        question_prompt(asked[i]["question"], passage, [(known.texts[j], known.answers[j], of[j][0]) for j in shots])
        for i, shots in zip(positions, drawn, strict=True)
        for passage in of[i][:PASSAGES]
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


def compare(
    folder: Path, real: Path, dtype: str, queries: int, count: int, *, exact: np.ndarray | None, quick: bool
) -> tuple[list[Row], np.ndarray]:
    """The rows of one number format, and our log-probs; `exact` are those of fp32, if they are known."""
    pages, asked = read(real, 60 if quick else None)
    prompts, continuations = pairs([texts[0] for texts in pages.values()], queries, 2 if quick else DOCUMENTS)
    to_answer = questions(pages, asked, count)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    lm = open_model(folder, dtype)

    def ids(texts: list[Prompt]) -> list[list[int]]:
        return tokenizer([prompt.document + prompt.context for prompt in texts])["input_ids"]

    def answers() -> list[str]:
        return [one.text for one in lm.generate(to_answer, NEW_TOKENS, NEVER)]

    to_read, wanted = ids(prompts), tokenizer(continuations, add_special_tokens=False)["input_ids"]
    to_continue = ids(to_answer)
    works: dict[str, Callable] = {
        LOOP: partial(plain_scores, model, tokenizer, 1, prompts, continuations),
        BATCH: partial(plain_scores, model, tokenizer, DOCUMENTS, prompts, continuations),
        "scores": partial(scores, lm, prompts, continuations),
        GENERATE: partial(plain_answers, model, tokenizer, to_answer),
        "answers": answers,
    }
    kinds = [] if llama_cpp_peer.missing() else FORMATS[dtype]
    weights = llama_cpp_peer.write(model, Path(f"{dtype}.gguf")) if kinds else None
    for kind in kinds:
        other = llama_cpp_peer.LlamaCpp(llama_cpp_peer.converted(weights, kind), exact=kind == "f32")
        works[f"scores {kind}"] = partial(other.score, to_read, wanted)
        works[f"answers {kind}"] = partial(other.answers, to_continue, NEW_TOKENS)
    run = measure.best({name: partial(measure.timed, work) for name, work in works.items()}, 1 if quick else 2)
    ours, close = run["scores"].result, {"fp32": 1e-4, "bf16": 0.1}[dtype]
    exact = ours if exact is None else exact
    for peer in (LOOP, BATCH):
        assert np.abs(ours - run[peer].result).mean() < close, f"{peer} differs"
    said = [[text.strip() for text in run[way].result] for way in (GENERATE, "answers")]
    assert said[0] == said[1] or dtype == "bf16", f"other answers: {said}"  # in bf16, padding changes some
    nats = {kind: float(np.abs(run[f"scores {kind}"].result - exact).mean()) for kind in kinds}
    if kinds and dtype == "fp32":  # flash attention, llama.cpp's default, keeps parts in fp16; without it, 3e-6 nats
        assert nats["f32"] < 5e-3, f"llama.cpp's log-probs are {nats['f32']:.4f} nats from ours"
    inner = sum(weight.numel() for weight in model.model.layers.parameters())  # without logits
    limit = {"limit": f"products in {dtype}", "most": peak(dtype) / (2 * inner), "memory": False}
    away = {kind: f"{llama(kind)}, {far:.2g} nats a token from fp32" for kind, far in nats.items()}
    rows_of = (
        (SCORING, "scores", to_read + wanted, {LOOP: LOOP, BATCH: BATCH} | {away[k]: f"scores {k}" for k in kinds}),
        (ANSWERS, "answers", to_continue, {GENERATE: GENERATE} | {llama(k): f"answers {k}" for k in kinds}),
    )
    made = [
        measure.row(f"{what}, {dtype}", peer, "tokens", sum(map(len, read)), run[theirs], run[way], **limit)
        for what, way, read, peers in rows_of
        for peer, theirs in peers.items()
    ]
    if reason := llama_cpp_peer.missing():
        made += [Row(f"{what}, {dtype}", llama(k), missing=reason) for what, *_ in rows_of for k in FORMATS[dtype]]
    return made, ours


def llama(kind: str) -> str:
    return f"llama.cpp, {kind}"


def rows(quick: bool = False, queries: int = 2, asked: int = 8) -> list[Row]:
    """Of `queries` passages the second halves are scored; `asked` questions have PASSAGES prompts each."""
    folder, real = measure.real("smollm2-135m", "LONGTAIL_REAL_MODELS"), measure.real("passages")
    if missing := (not folder and measure.NO_WEIGHTS) or (not real and measure.NO_FILES):
        ways = [(SCORING, LOOP), (SCORING, BATCH), (ANSWERS, GENERATE)]
        ways += [(what, llama(kind)) for what in (SCORING, ANSWERS) for kind in FORMATS["fp32"]]
        return [Row(what, peer, missing=missing) for what, peer in ways]
    found, exact = [], None
    with measure.in_folder():
        for dtype in ["fp32"] if quick else DTYPES:
            made, ours = compare(
                folder, real, dtype, 1 if quick else queries, 1 if quick else asked, exact=exact, quick=quick
            )
            exact = ours if exact is None else exact
            found += made
    return found


if __name__ == "__main__":
    measure.main(rows)
