"""HttpModel: a model behind OpenAI's completions or chat interface, served by vLLM, llama.cpp or a paid service."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.http_choice import (
    FLOOR,
    TOKEN_ID,
    TOLERANCE,
    Choice,
    Mixture,
    Shown,
    Unable,
    fault,
    generate_under,
)
from pipelines.lm.http_client import CompletionsClient
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.lm.ragged import joined
from pipelines.lm.token_prompts import PromptTokenizer, read_tokenizer
from pipelines.params import params

PROBE, SHORTER_PROBE = "one two three", "one two"
TRIED = {
    True: 256,
    False: 8,
}  # tokens of the answer to PROBE, in a chat, and after a text; reasoning shows in them
THEIR_OWN = "have it show the model's own (vLLM: --logprobs-mode raw_logprobs)"
ABILITIES = {
    "score": "score texts",
    "choose": "choose between options",
    "generate": "generate answers",
    "vote": "vote",
    "mix": "generate under the mixture",
}
BY_IDS = {"return_tokens_as_token_ids": True}
ECHO = {
    "max_tokens": 1,
    "echo": True,
    "logprobs": 1,
}  # scores a prompt; some servers refuse 0, or take it as no limit


class HttpModel:
    """The LanguageModel `lm.path` of the server `lm.http.url`. Answers and costs are kept in the folder `cache`.

    With `http.tokenizer`, saved in `folder`, prompts are sent as token ids and cut as Prompt says. Without it they are
    sent as texts, with `lm.chat` to the chat interface: it tokenises them, refuses long ones, and can't score or mix.
    """

    def __init__(self, folder: Path, lm: params.LM, key: str | None, cache: Path) -> None:
        """Raises LongtailError where the server does not serve the model, or the tokenizer is another model's."""
        self.name, self.max_tokens, self._settings = Path(folder).name, lm.http.max_tokens, lm.http
        self._tokenizer: PromptTokenizer | None = None
        if lm.http.tokenizer:
            self._tokenizer = PromptTokenizer(
                read_tokenizer(folder), folder, self.name, self.max_tokens
            )
        self._client = CompletionsClient(self.name, lm.path, lm.http, key, cache, lm.chat)
        self.usage = self._client.usage
        self._shown = {
            "logprobs": 1
        }  # fields of a request that ask for an answer's log-probabilities
        self._lacks: dict[str, str] = {}  # ability -> why the server lacks it
        self._lock, self._counted = (
            threading.Lock(),
            0.0,
        )  # the time until which seconds count for some task
        self._find_out()
        self.scores, self.mixes, self.votes = (
            what not in self._lacks for what in ("score", "mix", "vote")
        )
        self.begins = "" if lm.chat else " "

    @contextmanager
    def side_by_side(self, tasks: int) -> Iterator[Executor]:
        """Threads for so many tasks that ask the server at the same time; after an error in the block, none asks more.

        All tasks together have `http.concurrency` requests under way. What a task asks first is sent first.
        """
        with self._client.block(), ThreadPoolExecutor(tasks) as pool:
            try:
                yield pool
            except BaseException as error:
                self._client.stop(error)
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def took(self, started: float, ended: float) -> float:
        """The seconds of a task that ran between two times, without those that count for a task before it."""
        with self._lock:
            started, self._counted = max(started, self._counted), max(ended, self._counted)
        return max(0.0, ended - started)

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """Raises LongtailError where the server shows no log-probabilities of prompts, or there is no tokenizer."""
        self.require("score")
        tokens, counts = self._tokenizer.continuations(continuations)
        pairs = joined([self._tokenizer.prompts(prompts, tokens.lengths), tokens])
        nonempty = np.flatnonzero(tokens.lengths)
        sent, lasts = pairs.take(nonempty).tolist(), tokens.lengths[nonempty]

        def read(i: int, choice: Choice) -> np.ndarray:
            return choice.prompt_log_probs(
                len(sent[i]), np.arange(len(sent[i]) - lasts[i], len(sent[i]))
            )

        log_probs = [np.empty(0, np.float32)] * len(prompts)
        for row, scored in zip(
            nonempty, self._client.ask(sent, read, lasts=lasts, **ECHO), strict=True
        ):
            log_probs[row] = scored
        return Scores(log_probs, counts.split(counts.values.astype(np.int32)))

    def fits(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> np.ndarray:
        return self._tokenizer.fits(prompts, continuations)

    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """All but the `http.logprobs` likeliest tokens are -inf.

        Where several tokens have a text that the server shows, each gets its log-probability. In a chat, the vocabulary
        are the texts that `token_id` was asked for, with and without a space before.
        """
        self.require("choose")
        sent, fields = (
            self._as_sent(prompts, 1)[0],
            {"max_tokens": 1, "logprobs": self._settings.logprobs},
        )
        shown = self._client.ask(sent, lambda _, choice: choice.likeliest(), **fields)
        size = len(self._tokenizer.tokenizer if self._tokenizer else self._ids_of_texts)
        result = np.full((len(prompts), size), -np.inf, np.float32)
        for row, likeliest in zip(result, shown, strict=True):
            for text, log_prob in likeliest.items():
                ids = self._ids_of_texts.get(text if self._tokenizer else text.strip(), [])
                row[ids] = np.logaddexp(row[ids], log_prob)
        return result

    @cached_property
    def _ids_of_texts(self) -> dict[str, list[int]]:
        """The ids of the tokens with each text; parts of characters have none."""
        if not self._tokenizer:
            return {}
        tokenizer = self._tokenizer.tokenizer
        texts = tokenizer.batch_decode(
            np.arange(len(tokenizer))[:, None], clean_up_tokenization_spaces=False
        )
        ids: dict[str, list[int]] = {}
        for id_, text in enumerate(texts):
            if text and "\ufffd" not in text:
                ids.setdefault(text, []).append(id_)
        return ids

    def token_id(self, text: str) -> int:
        """Raises LongtailError where the server shows no next tokens."""
        self.require("choose")
        if not self._tokenizer:
            with self._lock:
                return self._ids_of_texts.setdefault(text, [len(self._ids_of_texts)])[0]
        return self._tokenizer.token_id(text)

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """Without a tokenizer nothing is cut: the server refuses a text that is too long."""
        return (
            self._tokenizer.seen(prompts, np.full(len(prompts), max_tokens))
            if self._tokenizer
            else list(prompts)
        )

    def generate(
        self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n"
    ) -> list[Generation]:
        """Raises LongtailError where `max_tokens` leaves no room for a prompt.

        A server stops at once where a text begins with the stop string. It is then asked again without one, and both
        requests count. A chat is never sent one, because some services refuse white space there.
        """
        sent, lengths = self._as_sent(prompts, max_tokens)
        reasoned: set[int] = set()

        def read(i: int, choice: Choice) -> Generation:
            if choice.spoken()[0]:
                reasoned.add(i)
            tokens = (
                (choice.usage.prompt_tokens, choice.usage.completion_tokens)
                if choice.usage
                else None
            )
            return Generation(
                *choice.answer(stop, "vote" not in self._lacks),
                *(tokens or (int(lengths[i]), len(choice.logprobs.tokens))),
            )

        fields = {"max_tokens": max_tokens} | self._shown
        stops = {} if self._client.chat else {"stop": [stop]}
        made = self._client.ask(sent, read, **stops, **fields)
        empty = [i for i, first in enumerate(made) if not first.text and stops]
        again = self._client.ask(
            [sent[i] for i in empty], lambda i, choice: read(empty[i], choice), **fields
        )
        for i, second in zip(empty, again, strict=True):
            tokens = (
                made[i].prompt_tokens + second.prompt_tokens,
                made[i].new_tokens + second.new_tokens,
            )
            made[i] = Generation(second.text, second.mean_log_prob, *tokens)
        with self._lock:
            self.usage["lm_reasoned"] += len(reasoned)
        return made

    def _as_sent(
        self, prompts: Sequence[Prompt], max_tokens: int
    ) -> tuple[list[str] | list[list[int]], np.ndarray]:
        """The prompts as token ids that leave room for `max_tokens`, or as texts; and their tokens, 0 if unknown."""
        if max_tokens >= self.max_tokens:
            raise LongtailError(
                f"{max_tokens} new tokens asked of {self.name}, which reads {self.max_tokens} at once"
            )
        if not self._tokenizer:
            return [prompt.document + prompt.context for prompt in prompts], np.zeros(
                len(prompts), np.int64
            )
        tokens = self._tokenizer.prompts(prompts, np.full(len(prompts), max_tokens))
        return tokens.tolist(), tokens.lengths

    def generate_mixture(
        self,
        prompts: Sequence[Prompt],
        log_weights: np.ndarray,
        max_tokens: int,
        stop: str = "\n",
        *,
        sequence_mixture: bool = False,
    ) -> list[Generation]:
        """Sends each prompt once for each token of the answer. Raises LongtailError where the server can't mix."""
        self.require("mix")
        sent, k = self._as_sent(prompts, max_tokens)[0], log_weights.shape[1]
        count = self._settings.logprobs
        fields = {"max_tokens": 1, "logprobs": count} | self._by_ids

        def read(_: int, choice: Choice) -> Shown:
            return {self._token(text): log_prob for text, log_prob in choice.likeliest().items()}

        def ask(prompts: list[list[int]]) -> list[Shown]:
            return self._client.ask(prompts, read, times=max_tokens, **fields)

        pairs = zip(
            [sent[start : start + k] for start in range(0, len(sent), k)], log_weights, strict=True
        )
        mixtures = [Mixture(*pair, count, moving=sequence_mixture) for pair in pairs]
        made = generate_under(mixtures, ask, self._tokenizer.tokenizer, max_tokens, stop)
        with self._lock:
            self.usage["lm_undecided"] += sum(not generation.decided for generation in made)
        return made

    def _token(self, text: str) -> int | str:
        """The id of the token that a server shows so; the text where it is not one token's alone."""
        if by_id := TOKEN_ID.fullmatch(text):
            return int(by_id[1])
        ids = self._ids_of_texts.get(text, ())
        return ids[0] if len(ids) == 1 else text

    @cached_property
    def _by_ids(self) -> dict[str, bool]:
        """The field of a request that has vLLM show tokens by their ids; no field for a server that refuses it."""
        try:
            self._probe(
                [self._as_probe(PROBE)], lambda *_: None, max_tokens=1, logprobs=1, **BY_IDS
            )
        except Unable:
            return {}
        return BY_IDS

    # ------------------------------------------------------------------ what the server can do

    def require(self, ability: str) -> None:
        """Raise LongtailError where the server lacks one of ABILITIES."""
        if reason := self._lacks.get(ability):
            can = " and ".join(
                what for other, what in ABILITIES.items() if other not in self._lacks
            )
            raise LongtailError(
                f"{reason}, so {self.name} can't {ABILITIES[ability]}; it can still {can}"
            )

    def _find_out(self) -> None:
        """Find out by small requests what the server can do: wrong numbers look like any others.

        Scoring needs `echo` with `logprobs`; many servers accept that and leave these out, or give wrong ones.
        """
        first = self._first_answer()
        reasons, text = first.spoken()
        wrong = (
            fault(first.logprobs.token_logprobs)
            if text or not self._shown or first.logprobs.tokens
            else ""
        )
        if reasons:
            print(
                f"{self.name}: it reasons; that is cut off its answers, and counted (lm_reasoned)",
                flush=True,
            )
            self._lacks["vote"] = (
                f"{self._client.url}: shows no log-probabilities apart from those of its reasoning"
            )
        elif wrong:
            self._lacks["vote"] = f"{self._client.url}: shows {wrong} of its answers; {THEIR_OWN}"
        for ability, probe in (("score", self._try_scoring), ("choose", self._try_choosing)):
            try:
                probe(first)
            except Unable as error:
                self._lacks[ability] = str(error)
        chat = f"{self._client.url}: a chat interface continues no text" * self._client.chat
        if reason := chat or self._lacks.get("choose") or self._lacks.get("vote"):
            self._lacks["mix"] = reason

    def _first_answer(self) -> Choice:
        """The answer to PROBE. Raises LongtailError where the server can't take prompts in this form."""
        chat, key = self._client.chat, f"lm.{self.name}.http"
        most = min(TRIED[chat], self.max_tokens // 2)

        def read(_: int, choice: Choice) -> Choice:
            choice.spoken()  # an answer without one is not kept, so that it is asked for again
            return choice

        prompts = [
            self._as_probe(text)
            for text in (PROBE, SHORTER_PROBE)[: 1 if chat else self._settings.batch_size]
        ]
        try:
            return self._probe(prompts, read, max_tokens=most, **self._shown)
        except Unable as error:
            if not chat:
                raise LongtailError(
                    f"{error}; if it takes one prompt in a request, set {key}.batch_size to 1, and if it takes texts "
                    f"alone, no token ids, {key}.tokenizer to null as well"
                ) from None
        self._shown = {}  # it refuses to show log-probabilities
        return self._probe(prompts, read, max_tokens=most)

    def _try_scoring(self, first: Choice) -> None:
        """Score PROBE with `first`, the token generated after it: both ways must give it the same log-probability."""
        if self._client.chat:
            raise Unable(
                f"{self._client.url}: a chat interface shows no log-probabilities of prompts"
            )
        if not self._tokenizer:
            raise Unable(f"params.yaml: lm.{self.name}.http.tokenizer is null")
        prompt, after = self._as_probe(PROBE), (first.logprobs.tokens or [""])[0]
        following = self._tokenizer.tokens([after])[0].values.tolist()
        # servers write parts of a character in different ways
        is_piece = not after or "\ufffd" in after or after.startswith("bytes:")
        comparable = len(following) == 1 and first.logprobs.token_logprobs and not is_piece
        prompt += following if comparable else []

        def read(_: int, choice: Choice) -> None:
            values = choice.prompt_log_probs(len(prompt), np.arange(1, max(len(prompt), 2)))
            tokens = choice.logprobs.tokens[: len(prompt)]
            if not values.any():
                raise Unable(
                    f"gives log-probabilities that are all 0 (echo with logprobs); {THEIR_OWN}"
                )
            if PROBE.replace(" ", "") not in "".join(filter(str.isalpha, "".join(tokens))):
                raise LongtailError(
                    f"params.yaml: lm.{self.name}.http.tokenizer is {self._settings.tokenizer}, whose {PROBE!r} is "
                    f"{''.join(tokens)!r} to {self._client.url}; expected the tokenizer of the model there"
                )
            expected = (
                first.logprobs.token_logprobs[0]
                if comparable and tokens[-1:] == [after]
                else values[-1]
            )
            if abs(values[-1] - expected) > TOLERANCE:
                raise Unable(
                    f"gives {after!r} after {PROBE!r} the log-probability {values[-1]:.2f} as a "
                    f"prompt's token (echo with logprobs), {expected:.2f} as an answer's"
                )

        self._probe([prompt], read, **ECHO)

    def _try_choosing(self, first: Choice) -> None:
        wanted = self._settings.logprobs
        if first.spoken()[0]:
            raise Unable(f"{self._client.url}: the first token is one of reasoning")

        def read(_: int, choice: Choice) -> None:
            if (shown := len(choice.likeliest())) < wanted:
                raise Unable(f"shows {shown} of the likeliest next tokens, {wanted} are asked for")
            if all(value == 0 or value <= FLOOR for value in choice.likeliest().values()):
                raise Unable(
                    f"shows likeliest next tokens whose log-probabilities are all 0 or {FLOOR:g}; {THEIR_OWN}"
                )

        if not (self._tokenizer or self._client.chat):
            raise Unable(f"params.yaml: lm.{self.name}.http.tokenizer is null")
        self._probe([self._as_probe(PROBE)], read, max_tokens=1, logprobs=wanted)

    def _probe(self, prompts: list, read: Callable[[int, Choice], Any], **fields) -> Any:
        return self._client.ask(prompts, read, probe=True, **fields)[0]

    def _as_probe(self, text: str) -> str | list[int]:
        """The text as prompts are sent: token ids with a tokenizer, the text itself without."""
        return self._as_sent([Prompt(text)], 1)[0][0]
