"""llama.cpp beside the local language model: the same weights in its own format, the same token ids, on one core.

It needs llama-cpp-python and gguf; benchmarks/lm_real.py says so in its rows where they are absent.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import numpy as np
import torch

FORMATS = {"f32": 0, "bf16": 32, "q8_0": 7, "q4_0": 2}  # of weights: their numbers in llama.cpp's interface
AT_ONCE = 512  # tokens in a forward pass, llama.cpp's default
BLOCK = 256  # a context holds a multiple of so many tokens
MIN_COMMON = 16  # tokens: copying a shorter beginning from another sequence does not pay


def missing() -> str:
    """Why llama.cpp can't be measured here; empty where it can."""
    absent = [name for module, name in (("llama_cpp", "llama-cpp-python"), ("gguf", "gguf")) if not find_spec(module)]
    return f"{absent[0]} is not installed" if absent else ""


@cache
def _library():
    """llama.cpp, which logs nothing."""
    import llama_cpp

    llama_cpp.silent = llama_cpp.llama_log_callback(lambda *_: None)  # ctypes keeps no reference to it
    llama_cpp.llama_log_set(llama_cpp.silent, None)
    llama_cpp.llama_backend_init()
    return llama_cpp


def write(model, path: Path) -> Path:
    """Write a Llama model of transformers as a GGUF file in fp32, without a tokenizer."""
    import gguf

    config = model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.float().numpy()
        if n := heads.get(name.split(".")[-2]):  # llama.cpp turns neighbouring pairs, transformers the two halves
            values = values.reshape(n, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(names.get_name(name, (".weight",)), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(fp32: Path, kind: str) -> Path:
    """The GGUF file `fp32` with its weights in one of FORMATS, by llama.cpp itself."""
    lib = _library()
    path, settings = fp32.with_suffix(f".{kind}"), lib.llama_model_quantize_default_params()
    settings.ftype, settings.nthread = FORMATS[kind], 1
    if kind != "f32" and lib.llama_model_quantize(str(fp32).encode(), str(path).encode(), ctypes.byref(settings)):
        raise RuntimeError(f"llama.cpp made no {kind} of {fp32}")
    return fp32 if kind == "f32" else path


class LlamaCpp:
    """The model in a GGUF file. With `exact`, keys and values are kept in fp32, else in llama.cpp's default, fp16."""

    def __init__(self, path: Path, *, exact: bool) -> None:
        lib = self._lib = _library()
        self._exact = exact
        settings = lib.llama_model_default_params()
        # With AMX, llama.cpp crashes at the first pass over q8_0 or q4_0 (its issue 20824).
        settings.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        self._model = lib.llama_model_load_from_file(str(path).encode(), settings)
        if not self._model:
            raise RuntimeError(f"llama.cpp can't open {path}")
        self._vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))

    def score(self, prompts: Sequence[list[int]], continuations: Sequence[list[int]]) -> np.ndarray:
        """Log-probs of the continuations' tokens, float32. What a text begins with in common with another is read once.

        The texts are read in alphabetical order for that. Logits are made where they are needed.
        """
        texts = [a + b for a, b in zip(prompts, continuations, strict=True)]
        found: list[np.ndarray] = [np.empty(0, np.float32)] * len(texts)
        with self._context(1, max(map(len, texts))) as context:
            kept: list[int] = []
            for i in sorted(range(len(texts)), key=texts.__getitem__):
                first, last = len(prompts[i]) - 1, len(texts[i]) - 1
                start = min(common(kept, texts[i]), first)
                context.forget(0, start)
                logits = context.read(0, texts[i][:last], start, first)
                wanted = torch.tensor(texts[i][first + 1 :])
                found[i] = -torch.nn.functional.cross_entropy(logits, wanted, reduction="none").numpy()
                kept = texts[i][:last]
        return np.concatenate(found)

    def answers(self, prompts: Sequence[list[int]], count: int) -> list[list[int]]:
        """The `count` likeliest tokens after each prompt, one after another, those of all prompts in one batch.

        What a prompt begins with in common with another is read once.
        """
        order = sorted(range(len(prompts)), key=prompts.__getitem__)
        with self._context(len(prompts), max(map(len, prompts)) + count) as context:
            logits = torch.empty(len(prompts), self._vocabulary)
            for before, i in zip([None, *order], order, strict=False):
                start = 0 if before is None else common(prompts[before], prompts[i])
                start = min(start, len(prompts[i]) - 1) if start >= MIN_COMMON else 0
                if start:
                    context.copy(before, i)
                    context.forget(i, start)
                logits[i] = context.read(i, prompts[i], start, len(prompts[i]) - 1)[0]
            made = [logits.argmax(1).tolist()]
            for step in range(count - 1):
                places = [len(prompt) + step for prompt in prompts]
                made.append(context.next(made[-1], places).argmax(1).tolist())
        return [list(answer) for answer in zip(*made, strict=True)]

    def _context(self, sequences: int, length: int) -> _Context:
        settings = self._lib.llama_context_default_params()
        settings.n_ctx = sequences * -(-length // BLOCK) * BLOCK
        settings.n_seq_max, settings.n_batch, settings.n_ubatch = sequences, AT_ONCE, AT_ONCE
        settings.n_threads = settings.n_threads_batch = 1
        if self._exact:
            settings.type_k = settings.type_v = 0
        return _Context(self._lib, self._model, settings, self._vocabulary)


class _Context:
    """Keys and values of several sequences."""

    def __init__(self, lib, model, settings, vocabulary: int) -> None:
        self._lib, self._vocabulary = lib, vocabulary
        self._context = lib.llama_init_from_model(model, settings)
        if not self._context:
            raise RuntimeError("llama.cpp can't make a context")
        self._memory, self._batch = lib.llama_get_memory(self._context), lib.llama_batch_init(AT_ONCE, 0, 1)

    def __enter__(self) -> _Context:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)

    def copy(self, source: int, sequence: int) -> None:
        self._lib.llama_memory_seq_cp(self._memory, source, sequence, -1, -1)

    def forget(self, sequence: int, start: int) -> None:
        """Forget what a sequence has from the token `start` on."""
        self._lib.llama_memory_seq_rm(self._memory, sequence, start, -1)

    def read(self, sequence: int, tokens: list[int], start: int, first: int) -> torch.Tensor:
        """Read a sequence's tokens from `start` on; returns logits after each token from `first` on."""
        found = []
        for begin in range(start, len(tokens), AT_ONCE):
            places = [*range(begin, min(begin + AT_ONCE, len(tokens)))]
            shown = [place >= first for place in places]
            found.append(self._decode([tokens[i] for i in places], places, [sequence] * len(places), shown))
        return torch.cat(found)

    def next(self, tokens: list[int], places: list[int]) -> torch.Tensor:
        """Read a token of each sequence; returns the logits after it, (sequences, vocabulary)."""
        n = len(tokens)
        return self._decode(tokens, places, [*range(n)], [True] * n)

    def _decode(self, tokens: list[int], places: list[int], sequences: list[int], shown: list[bool]) -> torch.Tensor:
        batch, n = self._batch, len(tokens)
        batch.n_tokens = n
        for field, values in ((batch.token, tokens), (batch.pos, places), (batch.logits, shown)):
            np.ctypeslib.as_array(field, (n,))[:] = values
        for i, sequence in enumerate(sequences):
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if code := self._lib.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode ended with {code}")
        count = sum(shown)
        if not count:
            return torch.empty(0, self._vocabulary)
        logits = np.ctypeslib.as_array(self._lib.llama_get_logits(self._context), (count, self._vocabulary))
        return torch.from_numpy(logits).clone()  # the next batch writes over them


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first tokens two texts have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
