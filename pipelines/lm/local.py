"""LocalModel: a causal language model in a local folder, run by transformers; it decodes greedily (REPLUG §3.2).

It is loaded in fp32, bf16 or int8, with faster layers of the same formulas.
"""

import json
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import psutil
import torch
import transformers
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.forward_passes import TEXT, TOLERANCE, ForwardPasses, choose_shortcut
from pipelines.lm.language_model import Generation, Prompt, Scores, answer_of, no_tokens
from pipelines.lm.model_files import (
    CACHE_BYTES,
    UNREADABLE,
    check_complete,
    count_parameters,
    load_pretrained,
    max_tokens,
)
from pipelines.lm.ragged import joined, spans
from pipelines.lm.token_prompts import PromptTokenizer, read_tokenizer
from pipelines.storage.atomic import SCRATCH, write_json
from pipelines.storage.work_store import key_of
from pipelines.work import threads as torch_threads

logging.disable_progress_bar()  # loading weights takes no time
KEPT = SCRATCH / "trials"  # how far models in bf16 or int8 are from fp32
MIN_ROWS = 64  # torch's default multiplies fewer rows faster than oneDNN, as in decoding
TOKENS = 64  # the most tokens of TEXT that are compared


class LocalModel:
    """The LanguageModel in `folder`, called `name`; with `chat`, prompts are messages in its chat template."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        dtype: str,
        batch_tokens: int,
        device: str,
        threads: int,
        chat: bool = False,
    ) -> None:
        """Raises LongtailError where `folder` has no causal language model, no tokenizer, or no template for a chat."""
        if not (Path(folder) / "config.json").is_file():
            raise LongtailError(
                f"{folder}: no config.json, expected a causal language model in Hugging Face's layout"
            )
        torch_threads.use(threads)
        try:
            self.tokenizer = read_tokenizer(folder)
        except UNREADABLE as error:
            raise LongtailError(f"{folder}: no tokenizer: {' '.join(str(error).split())}") from None
        self.model = load(folder, self.tokenizer, dtype, device)
        self.name, self.batch_tokens = name, batch_tokens
        self._vocabulary = self.model.config.get_text_config().vocab_size
        self.max_tokens = max_tokens(folder, self.tokenizer)
        self._texts = PromptTokenizer(self.tokenizer, folder, name, self.max_tokens, chat=chat)
        self.fits, self.token_id = self._texts.fits, self._texts.token_id
        self.scores = self.mixes = self.votes = True
        self.begins = "" if chat else " "
        self._passes = ForwardPasses(self.model, self.tokenizer.pad_token_id or 0, batch_tokens)
        choose_shortcut(self._passes, self.tokenizer, folder, self.max_tokens)
        ends = self.model.generation_config.eos_token_id  # a token, several, or none
        several = ends if isinstance(ends, list) else [ends]
        self._ends = [
            token for token in {*several, self.tokenizer.eos_token_id} if token is not None
        ]
        self._holding = cache(self._tokens_holding)
        self._decoded_tokens = (
            None  # the tokens of the texts in a batch that is continued, if no pass reads all of it
        )
        if self._passes.keeps:
            self._decoded_tokens = max(batch_tokens, CACHE_BYTES // self._passes.bytes_kept())
        self.usage = self._passes.usage = no_tokens()  # without what was tried

    # ------------------------------------------------------------------ the protocol

    @torch.inference_mode()
    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """Raises LongtailError for a continuation that alone fills the model's positions."""
        continuation, counts = self._texts.continuations(continuations)
        nonempty = np.flatnonzero(continuation.lengths > 0)
        pairs = joined([self._texts.prompts(prompts, continuation.lengths), continuation]).take(
            nonempty
        )
        scored = continuation.take(nonempty)
        first = (
            pairs.lengths - scored.lengths - 1
        )  # the column that predicts the continuation's first token
        log_probs = np.empty(len(scored.values), np.float32)
        # The last token of a pair is predicted, but no token after it: the model need not read it.
        inputs = pairs.slice(np.arange(len(nonempty)), 0, pairs.lengths - 1)
        for batch, outputs, skipped in self._passes.over(inputs, first):
            counted = scored.lengths[batch]
            rows, columns = (
                np.repeat(np.arange(len(batch)), counted),
                spans(first[batch] - skipped, counted),
            )
            targets = torch.from_numpy(scored.take(batch).values)
            parts = [
                -functional.cross_entropy(logits, targets[part].to(logits.device), reduction="none")
                for part, logits in self._passes.logits(outputs, rows, columns)
            ]
            log_probs[spans(scored.bounds[batch], counted)] = torch.cat(parts).cpu().numpy()
            progress.advance(len(batch), len(nonempty))
        return Scores(
            continuation.split(log_probs), continuation.split(counts.values.astype(np.int32))
        )

    @torch.inference_mode()
    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        tokens = self._texts.prompts(prompts, np.ones(len(prompts), np.int64))
        result = np.empty((len(prompts), self._vocabulary), np.float32)
        for rows, logits in self._passes.after(tokens):
            result[rows] = torch.log_softmax(logits, dim=-1).cpu().numpy()
            progress.advance(len(rows), len(prompts))
        return result

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        return self._texts.seen(prompts, np.full(len(prompts), max_tokens))

    def generate(
        self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n"
    ) -> list[Generation]:
        """Raises LongtailError if `max_tokens` leaves no room for a prompt."""
        return self.generate_mixture(prompts, np.zeros((len(prompts), 1)), max_tokens, stop)

    def generate_mixture(
        self,
        prompts: Sequence[Prompt],
        log_weights: np.ndarray,
        max_tokens: int,
        stop: str = "\n",
        *,
        sequence_mixture: bool = False,
    ) -> list[Generation]:
        """Raises LongtailError if `max_tokens` leaves no room for a prompt."""
        if max_tokens >= self.max_tokens:
            raise LongtailError(
                f"{max_tokens} new tokens asked of {self.name}, which reads {self.max_tokens} at once"
            )
        tokens = self._texts.prompts(prompts, np.full(len(prompts), max_tokens))
        places = np.arange(len(prompts)).reshape(log_weights.shape)
        read = np.isfinite(log_weights)
        lengths = np.where(read, tokens.lengths[places], 0)
        shared, group = np.zeros((2, *places.shape), np.int64)
        if self._passes.keeps:
            shared[read], group[read] = prefixes.shared(
                tokens.take(places[read]), lengths[read] - 1
            )
        results: dict[int, Generation] = {}
        for window in _windows(shared, group, self.batch_tokens):
            numbers, first = np.unique(group[window], return_index=True)
            begun = tokens.slice(
                places[window].ravel()[first], 0 * first, shared[window].ravel()[first]
            )
            held = self._passes.hold(begun)
            tokens_kept = (lengths[window].max(1, initial=0) + max_tokens) * read[window].sum(1)
            for rows in self._passes.batches(tokens_kept, self._decoded_tokens):
                batch = window[rows]
                prompts_read = read[batch]
                beginnings, total = (
                    np.searchsorted(numbers, group[batch][prompts_read]),
                    int(read.sum()),
                )
                asked = tokens.take(places[batch][prompts_read])
                passes = self._passes.decoding(asked, held, beginnings, max_tokens, total)
                questions, weights = np.nonzero(prompts_read)[0], log_weights[batch][prompts_read]
                texts = self._greedy(passes, questions, weights, max_tokens, stop, sequence_mixture)
                for question, (text, mean, made) in zip(batch.tolist(), texts, strict=True):
                    new_tokens = made * int(read[question].sum())
                    results[question] = Generation(
                        text, mean, int(lengths[question].sum()), new_tokens
                    )
        return [results[question] for question in range(len(log_weights))]

    @torch.inference_mode()
    def _greedy(
        self,
        passes: Generator[torch.Tensor, torch.Tensor, None],
        questions: np.ndarray,
        log_weights: np.ndarray,
        max_tokens: int,
        stop: str,
        sequence_mixture: bool,
    ) -> list[tuple[str, float, int]]:
        """Each question's text `up_to` the stop string, its tokens' mean log-prob, and how many were generated in all.

        `passes` decode prompts for the `questions` (prompts,) 0, 1, ... with `log_weights` (prompts,). The next token
        has the largest sum over the question's prompts of weight * p(token | prompt, text so far).
        """
        n, device = questions.max() + 1, self.model.device
        weights = _Weights(questions, log_weights, device, moving=sequence_mixture)
        of_prompts = torch.from_numpy(questions).to(device)
        completes_stop = self._holding(stop[-1])
        lengths = np.full(
            n, max_tokens
        )  # tokens up to the end token (left out) or the one that completes `stop`
        unfinished = np.ones(n, bool)
        tokens, log_probs = (
            np.zeros((n, max_tokens), np.int64),
            np.zeros((n, max_tokens), np.float32),
        )
        logits = next(passes)
        for step in range(max_tokens):
            # Probabilities, not their logs: the largest of a mixture is never small enough to underflow.
            likely, token = (weights.matrix @ torch.softmax(logits.float(), dim=-1)).max(1)
            tokens[:, step], log_probs[:, step] = token.cpu().numpy(), likely.log().cpu().numpy()
            ended = unfinished & np.isin(tokens[:, step], self._ends)
            lengths[ended], unfinished[ended] = step, False
            for text in np.flatnonzero(unfinished & completes_stop[tokens[:, step]]):
                if stop in self._decode(tokens[text, : step + 1]).lstrip():
                    lengths[text], unfinished[text] = step + 1, False
            if step + 1 == max_tokens or not unfinished.any():
                break
            weights.follow(logits, token[of_prompts])
            logits = passes.send(token[of_prompts])
        made = ((tokens[i, :m], log_probs[i, :m]) for i, m in enumerate(lengths))
        return [(*answer_of(*each, stop, self._decode), len(each[0])) for each in made]

    def _decode(self, tokens: np.ndarray) -> str:
        return self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def _tokens_holding(self, character: str) -> np.ndarray:
        """Which tokens have `character` in their text, (vocabulary,) bool. Only these can complete a stop string."""
        texts = self.tokenizer.batch_decode(
            np.arange(self._vocabulary)[:, None], clean_up_tokenization_spaces=False
        )
        return np.array([character in text for text in texts], bool)


class _Weights:
    """The weights of prompts, `matrix` (questions, prompts) float32; 0 for the prompts of other questions.

    If `moving`, they follow the text as the sequence mixture wants it (see LanguageModel.generate_mixture).
    """

    def __init__(
        self, questions: np.ndarray, log_weights: np.ndarray, device: torch.device, *, moving: bool
    ) -> None:
        logs = np.full(
            (questions.max() + 1, len(questions)), -np.inf
        )  # log of weight * probability of the text so far
        logs[questions, np.arange(len(questions))] = log_weights
        self.matrix = torch.from_numpy(np.exp(logs).astype(np.float32)).to(device)
        self._logs = torch.from_numpy(logs).to(device) if moving else None

    def follow(self, logits: torch.Tensor, token: torch.Tensor) -> None:
        """Move on to the place after `token` (prompts,), of which the model said `logits` (prompts, vocabulary)."""
        if self._logs is not None:
            self._logs += torch.log_softmax(logits.double(), dim=-1).gather(1, token[:, None])[:, 0]
            self.matrix = torch.softmax(self._logs, dim=1).float()


def _windows(shared: np.ndarray, group: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Runs of questions whose prefixes, each counted once, have at most `max_tokens`: `shared`, (questions, k)."""
    start, held = 0, {}
    for question, prefixes_of_question in enumerate(
        map(dict, map(zip, group.tolist(), shared.tolist()))
    ):
        if question > start and sum((held | prefixes_of_question).values()) > max_tokens:
            yield np.arange(start, question)
            start, held = question, {}
        held |= prefixes_of_question
    if start < len(group):
        yield np.arange(start, len(group))


def load(folder: Path, tokenizer, dtype: str, device: str) -> PreTrainedModel:
    """Load the model in `folder` for inference, over all GPUs where there are several.

    `dtype` is fp32, bf16 (fp16 on a GPU without it) or int8 (LLM.int8, the rest in fp16). If fp32 fits into memory,
    others are compared with it, once, and refused with a LongtailError where they differ by more than TOLERANCE.
    """
    if (
        dtype == "bf16"
        and device == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        dtype = "fp16"
    if dtype == "fp32":
        return _open(folder, dtype, device)
    kept = (
        KEPT
        / f"{key_of(Path(folder), dtype, device, torch.__version__, transformers.__version__)}.json"
    )
    fp32_bytes, expected = 4 * (count_parameters(folder) or 0), None
    if kept.is_file():
        difference = json.loads(kept.read_text(encoding="utf-8"))
    elif fp32_bytes < 0.8 * psutil.virtual_memory().available:
        expected = _log_probs(_open(folder, "fp32", "cpu"), tokenizer)
    else:
        takes = f"{fp32_bytes / 1e9:.0f} GB"
        print(f"warning: {folder}: {dtype} not compared with fp32, which takes {takes}", flush=True)
        return _open(folder, dtype, device)
    model = _open(folder, dtype, device)
    if expected is not None:
        difference = float((_log_probs(model, tokenizer) - expected).abs().mean())
    if not difference <= TOLERANCE:
        raise LongtailError(
            f"{folder}: log-probs in {dtype} are {difference:.3f} nats a token from those in fp32, expected "
            f"{TOLERANCE} at most; set its dtype to fp32"
        )
    if expected is not None and SCRATCH.is_dir():  # in a project
        write_json(kept, difference)
    print(
        f"{folder}: log-probs in {dtype} are {difference:.4f} nats a token from those in fp32",
        flush=True,
    )
    return model


def _open(folder: Path, dtype: str, device: str) -> PreTrainedModel:
    several_gpus = device == "cuda" and torch.cuda.device_count() > 1
    options = (
        {"device_map": "auto" if several_gpus else device}
        if several_gpus or dtype == "int8"
        else {}
    )
    if dtype == "int8":
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    options |= {"dtype": {"fp32": torch.float32, "bf16": torch.bfloat16}.get(dtype, torch.float16)}
    model, loading_info = load_pretrained(
        AutoModelForCausalLM, folder, None, use_safetensors=True, **options
    )
    if dtype != "int8":  # int8 adds tensors that no checkpoint has
        check_complete(folder, model, loading_info)
    model = model.eval().requires_grad_(False)
    if "device_map" not in options:
        model = model.to(device)
    _replace_slow_layers(model)
    return model


@torch.inference_mode()
def _log_probs(model: PreTrainedModel, tokenizer) -> torch.Tensor:
    """log p of each token of TEXT but the first, (tokens - 1,) float32."""
    ids = torch.tensor([tokenizer(TEXT, verbose=False)["input_ids"][:TOKENS]], device=model.device)
    log_probs = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), dim=-1)
    return log_probs.gather(1, ids[0, 1:, None].to(log_probs.device)).squeeze(1).cpu()


class _OneDNNLinear(nn.Module):
    """x W^T + b in fp32 by oneDNN: as precise as torch's default, MKL, and twice as fast on AMD's processors."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias  # (outputs, inputs), (outputs,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() < MIN_ROWS * x.shape[-1]:
            return functional.linear(x, self.weight, self.bias)
        return functional.linear(x.to_mkldnn(), self.weight, self.bias).to_dense()


def _replace_slow_layers(model: nn.Module) -> None:
    """Replace layers of `model` in place: fp32 linear layers where MKL is slow, and GPT-2's activation anywhere."""
    processor = (
        torch.cpu.get_capabilities()
    )  # oneDNN is faster than MKL on x86 processors, but for Intel's
    x86 = torch.backends.mkldnn.is_available() and processor.get("architecture") == "x86_64"
    slow = x86 and "Intel" not in processor.get("cpu_name", "")
    for module in list(model.modules()):
        for name, layer in module.named_children():
            weight = getattr(layer, "weight", None)
            in_fp32 = (
                isinstance(weight, torch.Tensor)
                and weight.device.type == "cpu"
                and weight.dtype == torch.float32
            )
            if type(layer) is NewGELUActivation:  # it passes over its input eight times
                setattr(module, name, nn.GELU(approximate="tanh"))
            elif slow and in_fp32 and type(layer) is nn.Linear:
                setattr(module, name, _OneDNNLinear(weight, layer.bias))
            elif slow and in_fp32 and type(layer) is Conv1D:
                transposed = nn.Parameter(weight.T.contiguous(), requires_grad=False)
                setattr(module, name, _OneDNNLinear(transposed, layer.bias))
