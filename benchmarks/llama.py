"""llama.cpp over token ids, for the benchmark `lm`: reads a JSON object from standard input and
prints one.

It runs in a Python that has llama-cpp-python, not in the project's, on one core. The prompts come
in groups; what the prompts of a group begin with in common is read once, in llama.cpp's own cache,
and copied. Prompts are read one by one, as that is faster than many of different lengths together;
answers are decoded together, a token of each at a time.
"""

import json
import sys
import time
from itertools import chain

import llama_cpp as cpp
import numpy as np


class Model:
    """The GGUF file `path`, for at most `texts` texts of at most `tokens` tokens at once."""

    def __init__(self, path, texts, tokens):
        self.model = cpp.llama_model_load_from_file(path.encode(), cpp.llama_model_default_params())
        params = cpp.llama_context_default_params()
        params.n_threads = params.n_threads_batch = 1
        params.n_seq_max, params.kv_unified = (
            texts,
            False,
        )  # attention looks at a text's own tokens alone
        params.n_ctx, params.n_batch, params.n_ubatch = texts * (tokens // 256 + 1) * 256, 2048, 512
        self.context = cpp.llama_init_from_model(self.model, params)
        self.memory = cpp.llama_get_memory(self.context)
        self.vocabulary = cpp.llama_vocab_n_tokens(cpp.llama_model_get_vocab(self.model))
        self.read = 0

    def forward(self, texts, first=0):
        """Read tokens: `texts` are (text's number, position of the first token, tokens). Returns
        logits (n, vocabulary) at the tokens of each text from number `first` on; with `first` None
        there are none."""
        size = sum(len(tokens) for _, _, tokens in texts)
        batch = cpp.llama_batch_init(size, 0, 1)
        i, wanted = 0, []
        for number, start, tokens in texts:
            for j, token in enumerate(tokens):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = (
                    token,
                    start + j,
                    1,
                    number,
                )
                batch.logits[i] = first is not None and j >= first
                wanted += [i] * batch.logits[i]
                i += 1
        batch.n_tokens = size
        assert cpp.llama_decode(self.context, batch) == 0
        self.read += size
        rows = [
            np.ctypeslib.as_array(cpp.llama_get_logits_ith(self.context, i), (self.vocabulary,))
            for i in wanted
        ]
        logits = np.array(rows)
        cpp.llama_batch_free(batch)
        return logits

    def share(self, texts, numbers):
        """Read what `texts` begin with in common, for the texts `numbers`; returns how many
        tokens it has.
        """
        cpp.llama_memory_seq_rm(self.memory, numbers[0], -1, -1)
        short, long = min(texts), max(texts)
        same = next(
            (i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short)
        )
        same = min(
            [same, *(len(text) - 1 for text in texts)]
        )  # a token of each is left, to have logits of
        if len(texts) == 1 or not same:
            return 0
        self.forward([(numbers[0], 0, short[:same])], None)
        for number in numbers[1:]:
            cpp.llama_memory_seq_rm(self.memory, number, -1, -1)
            cpp.llama_memory_seq_cp(self.memory, numbers[0], number, -1, -1)
        return same


def score(model, groups):
    """Log-probs of the tokens of all continuations; a group has (prompt, continuation) pairs."""
    found = []
    for group in groups:
        texts = [prompt + continuation[:-1] for prompt, continuation in group]
        same = model.share([prompt for prompt, _ in group], list(range(len(group))))
        for number, (text, (prompt, continuation)) in enumerate(zip(texts, group, strict=True)):
            logits = model.forward([(number, same, text[same:])], len(prompt) - 1 - same).astype(
                np.float64
            )
            top = logits.max(1, keepdims=True)
            log_sums = top[:, 0] + np.log(np.exp(logits - top).sum(1))
            found += (logits[np.arange(len(continuation)), continuation] - log_sums).tolist()
            if number:
                cpp.llama_memory_seq_rm(model.memory, number, -1, -1)
    return found


def answer(model, groups, new_tokens, ends):
    """Tokens of the greedy answer to each prompt, up to one of `ends`."""
    answers, lengths, numbers = [], [], iter(range(sum(map(len, groups))))
    for group in groups:
        of_group = [next(numbers) for _ in group]
        same = model.share(group, of_group)
        for number, prompt in zip(of_group, group, strict=True):
            logits = model.forward([(number, same, prompt[same:])], len(prompt) - 1 - same)
            answers.append([int(logits[-1].argmax())])
            lengths.append(len(prompt))
    for step in range(1, new_tokens):
        going = [i for i, made in enumerate(answers) if made[-1] not in ends]
        if not going:
            break
        logits = model.forward([(i, lengths[i] + step - 1, answers[i][-1:]) for i in going])
        for i, token in zip(going, logits.argmax(1).tolist(), strict=True):
            answers[i].append(token)
    return answers


def main():
    asked = json.load(sys.stdin)
    groups, pairs = asked["groups"], "new_tokens" not in asked
    texts = (
        [prompt + after for group in groups for prompt, after in group]
        if pairs
        else [*chain(*groups)]
    )
    most = max(map(len, groups)) if pairs else len(texts)
    model = Model(asked["model"], most, max(map(len, texts)) + asked.get("new_tokens", 0))
    before, began = time.process_time(), time.perf_counter()
    result = (
        score(model, groups) if pairs else answer(model, groups, asked["new_tokens"], asked["ends"])
    )
    taken = {"cpu": time.process_time() - before, "wall": time.perf_counter() - began}
    print(json.dumps(taken | {"result": result, "read": model.read}))


if __name__ == "__main__":
    main()
