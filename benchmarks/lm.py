"""A local language model beside plain loops: scoring and short answers.

Every way scores the same (query, document) pairs on one core; that all give the same log-probs is
checked. Weights are random, in GPT-2 small's shape, beside the published code's loop; and those of
SmolLM2-135M ($LONGTAIL_REAL_MODELS) on real texts ($LONGTAIL_REAL), beside transformers. There the
halves of passages are scored, each after its first half with other passages before it. Answers are
to prompts as an ensemble has them: three for each question, with the same four demonstrations and
another passage each.

Models of several sizes answer and score in bf16 as the stages ask them: with demonstrations that
have passages. Beside them are transformers in bf16 and llama.cpp (llama.py), which reads the same
tokens with the weights' 4-bit original. The rows say how many tokens Longtail read, and how many of
common beginnings it did not read again.

The limit is the product of two large squares in the same number format, by torch.matmul or by
oneDNN, whichever is faster; its share is of the products that no way can do without.
"""

import csv
import gzip
import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from benchmarks import measure
from benchmarks.measure import Row, Run
from pipelines.answering.prompts import Questions, demonstrations, question_prompt
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
DOCUMENTS = 10  # of each query
PASSAGES, SHOTS, NEW_TOKENS = 3, 4, 16
NEVER = "\0"  # a stop string that the model does not say: both ways write as many tokens
PUBLISHED = "one pair at a time, all logits, fp32"
LOOP, BATCH = "transformers, a pair at a time", "transformers, padded batches"
GENERATE = "transformers' generate, batched"
LLAMA = "llama.cpp, 4-bit"
NAMES = {
    "smollm2-135m": "SmolLM2-135M",
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder 0.5B",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder 1.5B",
}
QUESTIONS = 24  # that a model answers; the largest answers half as many
LONG = (
    64  # tokens written for one question alone: most of the time goes into reading them one by one
)
CANDIDATES = 8  # documents that an answer is scored after
SCORING, ANSWERS = (
    "scoring, SmolLM2-135M",
    "short answers, 4 demonstrations with passages, SmolLM2-135M",
)


SHAPE = GPT2Config()  # GPT-2 small
TINY = GPT2Config(vocab_size=500, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
TOKENS = (128, 128, 128)  # of document, context, continuation


def flops(shape: GPT2Config) -> float:
    """Multiplications and additions that a pair needs: all layers, and logits where they are
    asked for.
    """
    n, width = sum(TOKENS) - 1, shape.n_embd
    layers = shape.n_layer * (
        2 * n * 12 * width**2 + 2 * n * n * width
    )  # attention looks at half of n x n
    return layers + 2 * TOKENS[2] * width * shape.vocab_size


def write_model(
    shape: PreTrainedConfig,
    folder: Path,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Random weights, drawn on `device`, and a tokenizer whose tokens are the words w0, w1, ..."""
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(shape, dtype=dtype)
    model.save_pretrained(folder)
    words = Tokenizer(
        models.WordLevel({f"w{i}": i for i in range(shape.vocab_size)}, unk_token="w0")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token"), "w0")
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)


def make_pairs(vocabulary: int) -> tuple[list[Prompt], list[str]]:
    """A query with DOCUMENTS documents."""
    rng = np.random.default_rng(0)
    texts = [
        [
            " ".join(f"w{i}" for i in row) + " "
            for row in rng.integers(1, vocabulary, (DOCUMENTS, n))
        ]
        for n in TOKENS
    ]
    documents, (context, *_), (continuation, *_) = texts
    return [Prompt(context, document) for document in documents], [continuation] * DOCUMENTS


@torch.inference_mode()
def plain_scores(
    model, tokenizer, at_once: int, prompts: list[Prompt], continuations: list[str]
) -> np.ndarray:
    """The log-probs of all continuations, from logits at all positions; texts are padded on the
    right.
    """
    found = []
    for start in range(0, len(prompts), at_once):
        some = range(start, min(start + at_once, len(prompts)))
        read = [tokenizer(prompts[i].document + prompts[i].context)["input_ids"] for i in some]
        wanted = [tokenizer(continuations[i], add_special_tokens=False)["input_ids"] for i in some]
        ends = [len(a) + len(b) for a, b in zip(read, wanted, strict=True)]
        ids, mask = torch.zeros(2, len(ends), max(ends), dtype=torch.int64)
        for row, (a, b) in enumerate(zip(read, wanted, strict=True)):
            ids[row, : ends[row]], mask[row, : ends[row]] = torch.tensor(a + b), 1
        ids = ids.to(model.device)
        logits = model(input_ids=ids, attention_mask=mask.to(model.device)).logits
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        chosen = log_probs[:, :-1].gather(2, ids[:, 1:, None])[..., 0].cpu()
        found += [
            chosen[i, len(a) - 1 : end - 1].numpy()
            for i, (a, end) in enumerate(zip(read, ends, strict=True))
        ]
    return np.concatenate(found)


@torch.inference_mode()
def plain_answers(
    model, tokenizer, prompts: list[Prompt], new_tokens: int = NEW_TOKENS
) -> list[str]:
    """All prompts in one batch, padded on the left."""
    given = tokenizer(
        [prompt.document + prompt.context for prompt in prompts], padding=True, return_tensors="pt"
    )
    made = model.generate(
        **given.to(model.device),
        max_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    return tokenizer.batch_decode(made[:, given["input_ids"].shape[1] :], skip_special_tokens=True)


def open_model(folder: Path, dtype: str) -> LocalModel:
    return LocalModel(
        folder, name="benchmark", dtype=dtype, batch_tokens=4096, device="cpu", threads=1
    )


def peak(dtype: str, n: int = 2048) -> float:
    """Multiplications and additions a second of one core."""
    one = torch.randn(n, n, dtype=DTYPES[dtype])
    ways = {"matmul": lambda: one @ one}
    if dtype == "fp32":
        other = one.to_mkldnn()
        ways["oneDNN"] = lambda: torch.nn.functional.linear(other, one, one[0])
    found = measure.best({name: partial(measure.timed, way) for name, way in ways.items()}, 6)
    return 2 * n**3 / min(run.cpu for run in found.values())


def compare(shape: GPT2Config, rounds: int) -> list[Row]:
    """Tokens a second in each number format, beside the published code's loop with eager
    attention.
    """
    prompts, continuations = make_pairs(shape.vocab_size)
    folder, found = Path("gpt2"), []
    write_model(shape, folder)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    works = {"loop": partial(plain_scores, model, tokenizer, 1, prompts, continuations)}
    for dtype in DTYPES:
        lm = open_model(folder, dtype)
        lm.score(prompts, continuations)
        works[dtype] = partial(scores, lm, prompts, continuations)
    run = measure.best({name: partial(measure.timed, work) for name, work in works.items()}, rounds)
    tokens = sum(TOKENS)
    for dtype, close in {"fp32": 1e-4, "bf16": 0.05}.items():
        assert np.abs(run[dtype].result - run["loop"].result).mean() < close, f"{dtype} differs"
        limit = {
            "limit": f"products in {dtype}",
            "most": peak(dtype) * tokens / flops(shape),
            "memory": False,
        }
        what, both = f"scoring, GPT-2 small shape, {dtype}", (run["loop"], run[dtype])
        found.append(measure.row(what, PUBLISHED, "tokens", len(prompts) * tokens, *both, **limit))
    return found


def read_real(
    folder: Path, characters: int | None
) -> tuple[dict[str, list[str]], list[dict[str, str]]]:
    """Passages by title, each as far as `characters`, and PopQA's questions whose subjects have
    PASSAGES of them.
    """
    pages: dict[str, list[str]] = {}
    with gzip.open(folder / "psgs_w100.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            pages.setdefault(row["title"], []).append(row["text"][:characters])
    with (folder / "popQA_covered.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        asked = [row for row in rows if len(pages.get(row["s_wiki_title"], ())) >= PASSAGES]
    return pages, asked


def halves(passages: list[str], queries: int, documents: int) -> tuple[list[Prompt], list[str]]:
    """Each query is a passage: its first half is the context, its second the continuation."""
    prompts, continuations = [], []
    for query in passages[:queries]:
        middle = query.index(" ", len(query) // 2)
        for document in passages[queries : queries + documents]:
            prompts.append(Prompt(query[:middle], f"{document}\n"))
            continuations.append(query[middle:])
    return prompts, continuations


def questions(
    pages: dict[str, list[str]], asked: list[dict[str, str]], count: int, n_shots: int, k: int
) -> tuple[list[Prompt], list[str]]:
    """k prompts for each question, with passages of its own page and then of others, and its
    answer for each.
    """
    columns = {name: [row[name] for row in asked] for name in ("id", "prop", "question", "obj")}
    known = Questions(columns["id"], np.array(columns["prop"]), columns["question"], columns["obj"])
    positions = [*range(0, len(asked), max(1, len(asked) // count))][:count]
    of = [pages[row["s_wiki_title"]] for row in asked]
    drawn = demonstrations(0, "popqa", known, positions, n_shots)
    others = [texts[0] for texts in pages.values()]
    prompts = [
        question_prompt(
            asked[i]["question"],
            passage,
            [(known.texts[j], known.answers[j], of[j][0]) for j in shots],
        )
        for i, shots in zip(positions, drawn, strict=True)
        for passage in (of[i][:PASSAGES] + others)[:k]
    ]
    return prompts, [f" {known.answers[i]}" for i in positions for _ in range(k)]


def compare_real(folder: Path, real: Path, dtype: str, quick: bool) -> list[Row]:
    """The rows of SmolLM2-135M in one number format; transformers computes in the same."""
    pages, asked = read_real(real, 60 if quick else None)
    passages, sizes = [texts[0] for texts in pages.values()], (1, 2) if quick else (2, DOCUMENTS)
    prompts, continuations = halves(passages, *sizes)
    to_answer, _ = questions(pages, asked, 1 if quick else 8, SHOTS, PASSAGES)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    lm = open_model(folder, dtype)
    works: dict[str, Callable] = {
        LOOP: partial(plain_scores, model, tokenizer, 1, prompts, continuations),
        BATCH: partial(plain_scores, model, tokenizer, DOCUMENTS, prompts, continuations),
        SCORING: partial(scores, lm, prompts, continuations),
        GENERATE: partial(plain_answers, model, tokenizer, to_answer),
        ANSWERS: partial(written, lm, to_answer, NEW_TOKENS),
    }
    run = measure.best(
        {name: partial(measure.timed, work) for name, work in works.items()}, 1 if quick else 2
    )
    for peer in (LOOP, BATCH):
        far = np.abs(run[SCORING].result - run[peer].result).mean()
        assert far < {"fp32": 1e-4, "bf16": 0.1}[dtype], f"{peer} differs"
    said = [[text.strip() for text in run[way].result] for way in (GENERATE, ANSWERS)]
    assert said[0] == said[1] or dtype == "bf16", (
        f"other answers: {said}"
    )  # in bf16, padding changes some
    inner = sum(weight.numel() for weight in model.model.layers.parameters())  # without logits
    limit = {"limit": f"products in {dtype}", "most": peak(dtype) / (2 * inner), "memory": False}
    texts = {SCORING: [prompt.document + prompt.context for prompt in prompts] + continuations}
    texts[ANSWERS] = [prompt.document + prompt.context for prompt in to_answer]
    counts = {what: sum(map(len, tokenizer(some)["input_ids"])) for what, some in texts.items()}
    return [
        measure.row(f"{what}, {dtype}", peer, "tokens", counts[what], run[peer], run[what], **limit)
        for what, peer in ((SCORING, LOOP), (SCORING, BATCH), (ANSWERS, GENERATE))
    ]


def llama(
    tokenizer, gguf: Path, k: int, prompts: list[Prompt], asked: int | list[str]
) -> Callable[[], Run]:
    """llama.cpp in another process, which writes `asked` tokens or scores the continuations.

    Opening does not count.
    """
    texts = [tokenizer(prompt.document + prompt.context)["input_ids"] for prompt in prompts]
    job = {"model": str(gguf), "ends": [tokenizer.eos_token_id], "new_tokens": asked}
    if scored := isinstance(asked, list):
        after = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in asked]
        job, texts = {"model": str(gguf)}, list(zip(texts, after, strict=True))
    job["groups"] = [texts[start : start + k] for start in range(0, len(texts), k)]
    command = [os.environ["LONGTAIL_LLAMA_CPP"], "-P", str(Path(__file__).with_name("llama.py"))]

    def way() -> Run:
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"llama.cpp: exit code {done.returncode}\n{done.stderr[-2000:]}")
        told = json.loads(done.stdout)
        result = np.array(told["result"]) if scored else tokenizer.batch_decode(told["result"])
        return Run(told["cpu"], told["wall"], 0.0, result)

    return way


def compare_sizes(name: str, folder: Path, real: Path, gguf: Path | None, quick: bool) -> list[Row]:
    """The rows of a model in bf16: answers, an ensemble's prompts, and the likelihoods that LSR
    asks for.
    """
    pages, asked = read_real(real, 60 if quick else None)
    count, found = 3 if quick else QUESTIONS // (1 + name.endswith("1.5b")), []
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    lm = open_model(folder, "bf16")
    products = peak("bf16") / (
        2 * sum(weight.numel() for weight in model.model.layers.parameters())
    )
    for what, k, questions_asked, new in (
        ("answers, 2 demonstrations and a passage", 1, count, NEW_TOKENS),
        (
            f"answers to an ensemble's {PASSAGES} prompts, 2 demonstrations",
            PASSAGES,
            -(-count // PASSAGES),
            NEW_TOKENS,
        ),
        (
            f"scoring an answer after {CANDIDATES} documents, 2 demonstrations",
            CANDIDATES,
            -(-count // CANDIDATES),
            0,
        ),
        (f"{LONG} tokens for one question alone, with a passage", 1, 1, LONG),
    ):
        prompts, answers = questions(pages, asked, questions_asked, 0 if new == LONG else 2, k)
        if not new:
            peer, plain = LOOP, partial(plain_scores, model, tokenizer, 1, prompts, answers)
            ours = partial(scores, lm, prompts, answers)
        else:
            peer, plain = GENERATE, partial(plain_answers, model, tokenizer, prompts, new)
            ours = partial(written, lm, prompts, new)
        ways = {peer: partial(measure.timed, plain), "ours": partial(measure.timed, ours)}
        if gguf:
            ways[LLAMA] = llama(tokenizer, gguf, k, prompts, new or answers)
        lm.generate(prompts[:1], 1, NEVER)  # a model's first call takes longer
        before = dict(lm.usage)
        run = measure.best(ways, 1)
        read, shared = (
            int(lm.usage[name] - before[name]) for name in ("lm_tokens_read", "lm_tokens_shared")
        )
        prompt = tokenizer(prompts[0].document + prompts[0].context)["input_ids"]
        if new == LONG and read < len(prompt) + LONG - 1:  # the model ended its text early
            continue
        peers = [other for other in run if other != "ours"]
        for other in peers:
            if not new:
                far = np.abs(run["ours"].result - run[other].result).mean()
                assert far < {LOOP: 0.1, LLAMA: 0.3}[other], (
                    f"{name}: {other} is {far:.2f} nats away"
                )
            else:
                both = zip(run["ours"].result, run[other].result, strict=True)
                same = [a.strip()[:20] == b.strip()[:20] for a, b in both]
                assert sum(same) >= len(same) // 2, (
                    f"{name}: {other} gives other answers to {same.count(False)}"
                )
        tokens = read + shared
        limit = {"limit": "products in bf16", "most": products * tokens / read, "memory": False}
        work = f"{what}, {NAMES[name]}, bf16; {read:,} tokens read, {shared:,} shared"
        found += [
            measure.row(work, other, "tokens", tokens, run[other], run["ours"], **limit)
            for other in peers
        ]
        if not gguf:
            found.append(Row(work, LLAMA, missing=measure.NO_LLAMA_CPP))
    return found


def written(lm: LocalModel, prompts: list[Prompt], new_tokens: int) -> list[str]:
    return [one.text for one in lm.generate(prompts, new_tokens, NEVER)]


def scores(lm: LocalModel, prompts: list[Prompt], continuations: list[str]) -> np.ndarray:
    return np.concatenate(lm.score(prompts, continuations).log_probs)


def rows(quick: bool = False) -> list[Row]:
    weights, real = measure.real("smollm2-135m", "LONGTAIL_REAL_MODELS"), measure.real("passages")
    missing = (not weights and measure.NO_WEIGHTS) or (not real and measure.NO_FILES)
    with measure.in_folder():
        found = compare(TINY if quick else SHAPE, 1 if quick else 2)
        if missing:
            found += [
                Row(what, peer, missing=missing)
                for what, peer in ((SCORING, LOOP), (ANSWERS, GENERATE))
            ]
        else:
            found += [row for dtype in DTYPES for row in compare_real(weights, real, dtype, quick)]
        for name in [*NAMES][: 1 if quick else None]:
            folder = measure.real(name, "LONGTAIL_REAL_MODELS")
            gguf = (
                measure.real(f"{name}.gguf", "LONGTAIL_GGUF")
                if os.environ.get("LONGTAIL_LLAMA_CPP")
                else None
            )
            if folder and real:
                found += compare_sizes(name, folder, real, gguf, quick)
            else:
                missing = measure.NO_FILES if folder else measure.NO_WEIGHTS
                found.append(Row(f"answers and scoring, {NAMES[name]}", GENERATE, missing=missing))
        return found
