"""llama.cpp over token ids, for the benchmark `lm`: reads a JSON object from standard input and
prints one.

It runs in a Python that has llama-cpp-python, not in the project's, on one core. The prompts come
in groups; what the prompts of a group begin with in common is read once, in llama.cpp's own cache,
and copied. Prompts are read one by one, as that is faster than many of different lengths together;
answers are decoded together, a token of each at a time.
"""

import json
import math
import os.path
import sys
import time
from itertools import chain

import llama_cpp as cpp
import numpy as np

CELLS = 256  # tokens of a context are a multiple of it


class Model:
    """A GGUF file, for at most `n_texts` texts of at most `n_tokens` tokens at once."""

    def __init__(self, path, n_texts, n_tokens):
        self.model = cpp.llama_model_load_from_file(path.encode(), cpp.llama_model_default_params())
        params = cpp.llama_context_default_params()
        params.n_threads = 1
        params.n_threads_batch = 1
        params.n_seq_max = n_texts
        params.kv_unified = False  # attention looks at a text's own tokens alone
        params.n_ctx = n_texts * math.ceil((n_tokens + 1) / CELLS) * CELLS
        params.n_batch = 2048
        params.n_ubatch = 512
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
        batch.n_tokens = size
        places = []  # of the tokens with logits
        place = 0
        for text, start, tokens in texts:
            for number, token in enumerate(tokens):
                has_logits = first is not None and number >= first
                if has_logits:
                    places.append(place)
                batch.token[place] = token
                batch.pos[place] = start + number
                batch.n_seq_id[place] = 1
                batch.seq_id[place][0] = text
                batch.logits[place] = has_logits
                place += 1
        assert cpp.llama_decode(self.context, batch) == 0
        self.read += size

        rows = []
        for place in places:
            pointer = cpp.llama_get_logits_ith(self.context, place)
            rows.append(np.ctypeslib.as_array(pointer, (self.vocabulary,)))
        logits = np.array(rows)
        cpp.llama_batch_free(batch)
        return logits

    def forward_end(self, text, n_known, prompt, continuation=()):
        """Read a prompt and its continuation after `n_known` tokens, for the text of that number.
        Returns logits from the prompt's last token on."""
        tokens = [*prompt, *continuation][n_known:]
        return self.forward([(text, n_known, tokens)], len(prompt) - 1 - n_known)

    def share(self, prompts, texts):
        """Read what `prompts` begin with in common, for the texts of these numbers; returns how
        many tokens it has.
        """
        cpp.llama_memory_seq_rm(self.memory, texts[0], -1, -1)
        if len(prompts) == 1:
            return 0
        beginning = os.path.commonprefix(prompts)  # noqa: RUF071
        shortest = min(map(len, prompts))
        n_shared = min(len(beginning), shortest - 1)  # a token of each is left, to have logits of
        if not n_shared:
            return 0

        self.forward([(texts[0], 0, beginning[:n_shared])], None)
        for text in texts[1:]:
            self.forget(text)
            cpp.llama_memory_seq_cp(self.memory, texts[0], text, -1, -1)
        return n_shared

    def forget(self, text):
        cpp.llama_memory_seq_rm(self.memory, text, -1, -1)


def score(model, groups):
    """Log-probs of the tokens of all continuations; a group has (prompt, continuation) pairs."""
    log_probs = []
    for group in groups:
        prompts = [prompt for prompt, _ in group]
        n_shared = model.share(prompts, range(len(group)))
        for text, (prompt, continuation) in enumerate(group):
            logits = model.forward_end(text, n_shared, prompt, continuation[:-1])
            log_probs += log_probs_of(logits.astype(np.float64), continuation)
            if text:
                model.forget(text)
    return log_probs


def log_probs_of(logits, tokens):
    """The log-probs of tokens, from the logits (n, vocabulary) at the places before them."""
    top = logits.max(1, keepdims=True)
    log_sums = top[:, 0] + np.log(np.exp(logits - top).sum(1))
    chosen = logits[np.arange(len(tokens)), tokens]
    return (chosen - log_sums).tolist()


def answer(model, groups, new_tokens, ends):
    """Tokens of the greedy answer to each prompt, up to one of `ends`."""
    answers = []
    lengths = []
    for prompts in groups:
        texts = range(len(answers), len(answers) + len(prompts))
        n_shared = model.share(prompts, texts)
        for text, prompt in zip(texts, prompts, strict=True):
            logits = model.forward_end(text, n_shared, prompt)
            answers.append([int(logits[-1].argmax())])
            lengths.append(len(prompt))

    for step in range(1, new_tokens):
        going = [text for text, tokens in enumerate(answers) if tokens[-1] not in ends]
        if not going:
            break
        last_tokens = [(text, lengths[text] + step - 1, answers[text][-1:]) for text in going]
        logits = model.forward(last_tokens)
        for text, token in zip(going, logits.argmax(1).tolist(), strict=True):
            answers[text].append(token)
    return answers


def open_model(job):
    """The model of a job, for the texts that it has at once."""
    if "new_tokens" in job:
        prompts = list(chain.from_iterable(job["groups"]))
        longest = max(map(len, prompts))
        return Model(job["model"], len(prompts), longest + job["new_tokens"])
    pairs = list(chain.from_iterable(job["groups"]))
    longest = max(len(prompt) + len(continuation) for prompt, continuation in pairs)
    return Model(job["model"], max(map(len, job["groups"])), longest)


def main():
    job = json.load(sys.stdin)
    model = open_model(job)
    cpu_before = time.process_time()
    started = time.perf_counter()
    if "new_tokens" in job:
        result = answer(model, job["groups"], job["new_tokens"], job["ends"])
    else:
        result = score(model, job["groups"])
    output = {
        "cpu": time.process_time() - cpu_before,
        "wall": time.perf_counter() - started,
        "result": result,
        "read": model.read,
    }
    print(json.dumps(output))


if __name__ == "__main__":
    main()
