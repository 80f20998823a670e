"""Language models with real weights on PopQA's questions, beside transformers and llama.cpp.

Models of several sizes ($LONGTAIL_REAL_MODELS) answer and score as the stages ask them: with
demonstrations that have passages ($LONGTAIL_REAL). They do so in bf16, or in fp32 on a processor
that does not multiply bf16 in hardware. Transformers does the same in the same format, and
llama.cpp (llama.py) reads the same tokens with the 4-bit weights that the others come from. The
rows say how many tokens Longtail read, and how many of common beginnings it did not read again. The
limit is the product of two large squares in that format; its share is of the products that no way
can do without.
"""

import json
import math
import os
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import measure, operations, plain_ways
from benchmarks.measure import Row, Run
from benchmarks.popqa_prompts import PASSAGES, RealTexts
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.lm.weights import DTYPES
from pipelines.work.devices import has_bf16

LOOP = "transformers, a pair at a time"
GENERATE = "transformers' generate, batched"
LLAMA = "llama.cpp, 4-bit"
NAMES = {
    "smollm2-135m": "SmolLM2-135M",
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder 0.5B",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder 1.5B",
}
LARGEST = "qwen2.5-coder-1.5b"
DTYPE = "bf16" if has_bf16("cpu") else "fp32"

NEW_TOKENS = 16
QUESTIONS = 24  # that a model answers; the largest answers half as many
CANDIDATES = 8  # documents that an answer is scored after
# tokens written for one question alone: most of the time goes into reading them one by one
LONG = 64
QUICK_CHARACTERS = 60  # of a passage
NEVER = "\0"  # a stop string that the model does not say: both ways write as many tokens

CLOSE = 0.1  # nats a token between two ways
CLOSE_IN_4_BITS = 0.3
SAME_CHARACTERS = 20  # by which answers are compared


class Models:
    """The same weights, as transformers and as Longtail open them."""

    def __init__(self, folder: Path) -> None:
        self.ours = LocalModel(
            folder, name="benchmark", dtype=DTYPE, batch_tokens=4096, device="cpu", threads=1
        )
        self.plain = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[DTYPE])
        self.plain.eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def tokens(self, prompts: list[Prompt]) -> list[list[int]]:
        texts = [prompt.document + prompt.context for prompt in prompts]
        return self.tokenizer(texts)["input_ids"]

    def continuation_tokens(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"]

    def limit(self) -> float:
        """Tokens a second that the products of all layers allow, without logits."""
        layers = self.plain.model.layers.parameters()
        n_weights = sum(weight.numel() for weight in layers)
        return operations.products_per_second(DTYPE) / (2 * n_weights)


@dataclass(frozen=True)
class Work:
    """What a model is asked, as `prompts` prompts of a question with a passage each."""

    name: str
    questions: int
    prompts: int
    n_shots: int
    new_tokens: int  # 0: the answers are scored


def rows(quick: bool = False) -> list[Row]:
    """The rows of all models, measured or with the reason why not."""
    folder = measure.real("passages")
    texts = None
    if folder:
        texts = RealTexts.read(folder, QUICK_CHARACTERS if quick else None)

    table = []
    for name in list(NAMES)[: 1 if quick else None]:
        weights = measure.real(name, "LONGTAIL_REAL_MODELS")
        gguf = None
        if os.environ.get("LONGTAIL_LLAMA_CPP"):
            gguf = measure.real(f"{name}.gguf", "LONGTAIL_GGUF")

        if weights and texts:
            table += compare_sizes(name, weights, texts, gguf, quick)
        else:
            missing = measure.NO_FILES if weights else measure.NO_WEIGHTS
            work = f"answers and scoring, {NAMES[name]}"
            table.append(Row(work, GENERATE, missing=missing))
    return table


def compare_sizes(
    name: str, weights: Path, texts: RealTexts, gguf: Path | None, quick: bool
) -> list[Row]:
    """The rows of a model: answers, an ensemble's prompts, and the likelihoods that LSR
    asks for.
    """
    count = QUESTIONS
    if name == LARGEST:
        count = QUESTIONS // 2
    if quick:
        count = 3

    models = Models(weights)
    limit = models.limit()
    table = []
    for work in works(count):
        table += compare_work(work, name, models, texts, gguf, limit)
    return table


def works(count: int) -> list[Work]:
    """Works of about `count` prompts each, and one long text."""
    return [
        Work("answers, 2 demonstrations and a passage", count, 1, 2, NEW_TOKENS),
        Work(
            f"answers to an ensemble's {PASSAGES} prompts, 2 demonstrations",
            questions=math.ceil(count / PASSAGES),
            prompts=PASSAGES,
            n_shots=2,
            new_tokens=NEW_TOKENS,
        ),
        Work(
            f"scoring an answer after {CANDIDATES} documents, 2 demonstrations",
            questions=math.ceil(count / CANDIDATES),
            prompts=CANDIDATES,
            n_shots=2,
            new_tokens=0,
        ),
        Work(f"{LONG} tokens for one question alone, with a passage", 1, 1, 0, LONG),
    ]


def compare_work(
    work: Work, name: str, models: Models, texts: RealTexts, gguf: Path | None, limit: float
) -> list[Row]:
    """A row for each peer; none where the model ended the long text early."""
    prompts, answers = texts.ask(work.questions, work.n_shots, work.prompts)
    ways = ways_of(work, models, prompts, answers, gguf)

    models.ours.generate(prompts[:1], 1, NEVER)  # a model's first call takes longer
    before = dict(models.ours.usage)
    runs = measure.best(ways, 1)
    usage = {counter: int(models.ours.usage[counter] - before[counter]) for counter in before}
    read = usage["lm_tokens_read"]
    shared = usage["lm_tokens_shared"]
    if work.new_tokens == LONG:
        (tokens,) = models.tokens(prompts)
        if read < len(tokens) + LONG - 1:
            return []

    ours = runs.pop("ours")
    for peer, run in runs.items():
        if work.new_tokens:
            check_answers(ours, run, f"{name}: {peer}")
        else:
            close = CLOSE_IN_4_BITS if peer == LLAMA else CLOSE
            check_scores(ours, run, close, f"{name}: {peer}")

    label = f"{work.name}, {NAMES[name]}, {DTYPE}; {read:,} tokens read, {shared:,} shared"
    n_tokens = read + shared
    table = []
    for peer, run in runs.items():
        row = measure.row(
            label,
            peer,
            "tokens",
            n_tokens,
            run,
            ours,
            limit=f"products in {DTYPE}",
            most=limit * n_tokens / read,
            memory=False,
        )
        table.append(row)
    if not gguf:
        table.append(Row(label, LLAMA, missing=measure.NO_LLAMA_CPP))
    return table


def ways_of(
    work: Work, models: Models, prompts: list[Prompt], answers: list[str], gguf: Path | None
) -> dict[str, measure.Way]:
    """How each peer and Longtail ("ours") do a work."""
    ways: dict[str, measure.Way] = {}
    if work.new_tokens:
        plain = partial(plain_ways.write_batch, models.plain, models.tokenizer, prompts)
        ways[GENERATE] = partial(measure.timed, partial(plain, work.new_tokens))
        ours = partial(write, models.ours, prompts, work.new_tokens)
        llama = partial(llama_answers, work, models, prompts, gguf)
    else:
        plain = partial(plain_ways.scores, models.plain, models.tokenizer, 1, prompts, answers)
        ways[LOOP] = partial(measure.timed, plain)
        ours = partial(scores, models.ours, prompts, answers)
        llama = partial(llama_scores, work, models, prompts, answers, gguf)

    ways["ours"] = partial(measure.timed, ours)
    if gguf:
        ways[LLAMA] = llama
    return ways


def llama_answers(work: Work, models: Models, prompts: list[Prompt], gguf: Path) -> Run:
    job = {
        "model": str(gguf),
        "groups": groups(models.tokens(prompts), work.prompts),
        "new_tokens": work.new_tokens,
        "ends": [models.tokenizer.eos_token_id],
    }
    run = run_llama(job)
    return run._replace(result=models.tokenizer.batch_decode(run.result))


def llama_scores(
    work: Work, models: Models, prompts: list[Prompt], continuations: list[str], gguf: Path
) -> Run:
    continuation_tokens = models.continuation_tokens(continuations)
    pairs = list(zip(models.tokens(prompts), continuation_tokens, strict=True))
    job = {"model": str(gguf), "groups": groups(pairs, work.prompts)}
    run = run_llama(job)
    return run._replace(result=np.array(run.result))


def groups(texts: list, size: int) -> list[list]:
    """The prompts of each question together, since they begin with the same tokens."""
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def run_llama(job: dict) -> Run:
    """A job of llama.py in a process of its own; opening the model does not count."""
    script = Path(__file__).with_name("llama.py")
    command = [os.environ["LONGTAIL_LLAMA_CPP"], "-P", str(script)]
    process = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
    if process.returncode:
        error = process.stderr[-2000:]
        raise RuntimeError(f"llama.cpp: exit code {process.returncode}\n{error}")
    output = json.loads(process.stdout)
    return Run(output["cpu"], output["wall"], 0.0, output["result"])


def check_scores(ours: Run, theirs: Run, close: float, name: str) -> None:
    """Raise if log-probs differ by `close` nats a token or more, on average."""
    difference = np.abs(ours.result - theirs.result).mean()
    assert difference < close, f"{name} is {difference:.2g} nats away"


def check_answers(ours: Run, theirs: Run, name: str) -> None:
    """Raise if more than half of the answers begin in another way."""
    n_same = 0
    for our_text, their_text in zip(ours.result, theirs.result, strict=True):
        n_same += our_text.strip()[:SAME_CHARACTERS] == their_text.strip()[:SAME_CHARACTERS]
    n_answers = len(ours.result)
    assert n_same >= n_answers // 2, f"{name} gives other answers to {n_answers - n_same}"


def write(lm: LocalModel, prompts: list[Prompt], new_tokens: int) -> list[str]:
    return [generation.text for generation in lm.generate(prompts, new_tokens, NEVER)]


def scores(lm: LocalModel, prompts: list[Prompt], continuations: list[str]) -> np.ndarray:
    return np.concatenate(lm.score(prompts, continuations).log_probs)
