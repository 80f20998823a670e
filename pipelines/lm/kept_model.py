"""A local language model whose scores and answers are kept, so that a new month asks new prompts.

A result is kept by a hash of all that was asked for it. Results lie in .longtail/kept, in a folder
for each stage and for each model as it is run: its files, number format, device, threads and code.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.lm.language_model import (
    Generation,
    LocalAbilities,
    Prompt,
    Scores,
    nothing_asked,
)
from pipelines.lm.server_answers import Silent
from pipelines.storage.kept_answers import FILE, Counts, KeptAnswers
from pipelines.storage.work_store import KEPT, content_key
from pipelines.work import code

if TYPE_CHECKING:
    from pipelines.lm.local import LocalModel

HASH_BYTES = 16  # bytes of a request's hash
LIBRARIES = ("torch", "transformers")  # whose versions change last digits


class KeptModel(LocalAbilities):
    """A LanguageModel that asks `model` only for results that an earlier run kept in `results`.

    Missing results are asked in one call, in their order, and are used from the next run on. So a
    run that finds none does the same work as without this class, in as many processes as it may
    have. A result's last digits depend on its batch, and so on which results are kept. `next_token`
    keeps nothing, because a result is as large as the vocabulary.
    """

    def __init__(self, model: LocalModel, results: Path) -> None:
        self.model = model
        self.name = model.name
        self.max_tokens = model.max_tokens
        self.begins = model.begins
        self.scores = model.scores
        self.fits = model.fits
        self.seen = model.seen
        self.token_id = model.token_id
        self.next_token = model.next_token
        self.usage = model.usage
        self.usage |= nothing_asked()

        self._folder = results

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel and LocalModel."""

        def ask(rows: Sequence[int]) -> list[bytes]:
            scores = self.model.score(
                [prompts[row] for row in rows], [continuations[row] for row in rows]
            )
            results = []
            for log_probs, n_bytes in zip(scores.log_probs, scores.bytes, strict=True):
                results.append(log_probs.tobytes() + n_bytes.tobytes())
            return results

        requests = list(zip(prompts, continuations, strict=True))
        scores = Scores([], [])
        for result in self._results("score", requests, ask):
            half = len(result) // 2  # both arrays have four bytes for a token
            scores.log_probs.append(np.frombuffer(result[:half], np.float32))
            scores.bytes.append(np.frombuffer(result[half:], np.int32))
        return scores

    def generate(
        self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n"
    ) -> list[Generation]:
        """See LanguageModel and LocalModel."""
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
        """See LanguageModel and LocalModel."""
        k = log_weights.shape[1]
        prompts_of_question = [prompts[start : start + k] for start in range(0, len(prompts), k)]

        def generate(questions: Sequence[int]) -> list[bytes]:
            prompts_asked: list[Prompt] = []
            for question in questions:
                prompts_asked += prompts_of_question[question]
            generations = self.model.generate_mixture(
                prompts_asked,
                log_weights[questions],
                max_tokens,
                stop,
                sequence_mixture=sequence_mixture,
            )
            return [json.dumps(asdict(generation)).encode() for generation in generations]

        def ask(questions: Sequence[int]) -> list[bytes]:
            n_questions = len(log_weights)
            try:
                return generate(questions)
            except Silent:
                # All questions of the call show whether the model says nothing but its reasoning.
                if len(questions) == n_questions:
                    raise
                generations = generate(range(n_questions))
                return [generations[question] for question in questions]

        asked = (max_tokens, stop, sequence_mixture)
        requests = list(zip(prompts_of_question, log_weights.tolist(), strict=True))
        results = self._results(f"generate {asked}", requests, ask)
        return [Generation(**json.loads(result)) for result in results]

    def _results(
        self,
        kind: str,
        requests: Sequence[Any],
        ask: Callable[[Sequence[int]], list[bytes]],
    ) -> list[bytes]:
        """The result of each request: the kept one, or what `ask` gives for the missing rows.

        Raises LongtailError if the file of the results is damaged. It is opened for each call,
        because a worker lives on when someone has removed it.
        """
        keys = []
        for request in requests:
            digest = hashlib.blake2b(repr((kind, request)).encode(), digest_size=HASH_BYTES)
            keys.append(digest.hexdigest())

        answers = KeptAnswers(self._folder)
        kept = answers.use(keys)
        missing = [row for row, key in enumerate(keys) if key not in kept]
        self.usage["lm_asked"] += len(missing)
        self.usage["lm_kept"] += len(keys) - len(missing)
        results = [kept.get(key, b"") for key in keys]
        if missing:
            new: dict[str, bytes | None] = {}
            for row, result in zip(missing, ask(missing), strict=True):
                results[row] = result
                new[keys[row]] = result
            answers.put(new, waiting=True)
        answers.close()
        return results


@contextmanager
def keeping(stage: str, folder: Path, settings: tuple[Any, ...]) -> Iterator[Path]:
    """Yield the folder of the results that a stage's model gave so far; keep the new ones.

    The model's files are in `folder`, and `settings` are what its numbers depend on besides. If the
    block fails, its results wait for the run that goes on with it.
    """
    versions = [version(library) for library in LIBRARIES]
    fingerprint = code.fingerprint("pipelines.lm.local")
    key = content_key((settings, versions), fingerprint, folder)
    results = KEPT.path(stage, key)
    results.mkdir(parents=True, exist_ok=True)
    KEPT.used(stage, key)
    yield results
    kept = KeptAnswers(results)
    kept.end_wait()
    kept.close()


def count_results(since: float = math.inf) -> dict[Path, Counts]:
    """Folder of kept results -> those that no run has used since then (unix seconds)."""
    counts = {}
    for folder in _folders():
        kept = KeptAnswers(folder)
        counts[folder] = kept.count(since)
        kept.close()
    return counts


def sweep_results(since: float) -> None:
    """Remove the results that no run has used since then (unix seconds)."""
    for folder in _folders():
        kept = KeptAnswers(folder)
        kept.sweep(since)
        kept.close()


def _folders() -> list[Path]:
    """The folders of kept results."""
    return sorted(file.parent for file in KEPT.folder.glob(f"*/*/{FILE}"))
