"""A language model behind OpenAI's completions interface: vLLM, llama.cpp, or a paid service.

What the server can do is tried out before any work: scoring needs the log-probabilities of the prompt's own tokens
(`echo` with `logprobs`), which many servers accept and then silently leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.choice import SAME, Choice, Unable, answer, begins, likeliest, piece, prompt_log_probs, prompt_tokens
from pipelines.lm.completions import Completions, most_tokens
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.lm.ragged import Ragged, byte_counts, joined
from pipelines.lm.token_prompts import PromptTokenizer

PROBE, ANOTHER = "one two three", "one two"
ABILITIES = {"score": "score texts", "choose": "choose between options", "generate": "generate answers (and vote)"}
NEXT = {"max_tokens": 1, "logprobs": 1}
ECHO = {"max_tokens": 0, "echo": True, "logprobs": 1}
ECHO_AND_ONE = ECHO | {"max_tokens": 1}  # for servers that refuse 0, or take it for no limit


class HttpModel:
    """With `http.tokenizer` (saved in `folder`), prompts go as token ids, cut as Prompt says, and scores are a local
    model's; without, they go as texts: the tokens are the server's, which refuses too long a text itself.

    Answers and costs are kept in the folder `cache`. Raises LongtailError where no such model answers, or the tokenizer
    is another's.
    """

    def __init__(self, folder: Path, lm: params.LM, key: str | None, cache: Path) -> None:
        self.name, self.max_tokens, self._settings = Path(folder).name, lm.http.max_tokens, lm.http
        self._server = Completions(self.name, lm.path, lm.http, key, cache)
        self._prompts: PromptTokenizer | None = None
        if lm.http.tokenizer:
            from transformers import AutoTokenizer

            own = AutoTokenizer.from_pretrained(folder)
            self._prompts = PromptTokenizer(own, folder, self.name, self.max_tokens)
        first = self._try_prompts()
        self._echo = ECHO
        tried = {"score": lambda: self._try_scoring(first), "choose": self._try_choosing}
        self._lacks = {ability: lack for ability, probe in tried.items() if (lack := _lack(probe))}
        self.scores, self.mixes = "score" not in self._lacks, False

    @property
    def usage(self) -> dict[str, float]:
        """See LanguageModel."""
        return self._server.usage

    # ------------------------------------------------------------------ the protocol

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel. Without a tokenizer, a token that begins in the prompt counts to the prompt.

        Raises LongtailError where the server gives no log-probabilities of prompts.
        """
        self.require("score")
        if self._prompts is None:
            return self._score_texts(prompts, continuations)
        tokens, counts = self._prompts.continuations(continuations)
        pairs = joined([self._prompts.prompts(prompts, tokens.lengths), tokens])
        some = np.flatnonzero(tokens.lengths)
        sent = _lists(pairs.take(some))

        def read(i: int, choice: Choice) -> np.ndarray:
            own = np.arange(len(sent[i]) - tokens.lengths[some[i]], len(sent[i]))
            return prompt_log_probs(choice, len(sent[i]), own, self._echo["max_tokens"])

        log_probs = [np.empty(0, np.float32)] * len(prompts)
        for row, found in zip(some, self._server.ask(sent, read, **self._echo), strict=True):
            log_probs[row] = found
        return Scores(log_probs, counts.split(counts.values.astype(np.int32)))

    def count_tokens(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> int:
        """Those that `score` would send, which costs nothing to say; without a tokenizer the most that they can be."""
        if self._prompts is None:
            texts = zip(prompts, continuations, strict=True)
            return sum(most_tokens(prompt.document + prompt.context + text) for prompt, text in texts)
        lengths = self._prompts.continuations(continuations)[0].lengths
        return int((self._prompts.prompts(prompts, lengths).lengths + lengths).sum())

    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """See LanguageModel: -inf but for the `http.logprobs` likeliest. Where the server's text for one of them is
        that of several tokens, each of these has it.

        Raises LongtailError where the server does not show them, or what they are is not known for want of a tokenizer.
        """
        self.require("choose")
        sent = _lists(self._prompts.prompts(prompts, np.ones(len(prompts), np.int64)))
        found = self._server.ask(sent, lambda _, choice: likeliest(choice), **self._one_token)
        result = np.full((len(prompts), len(self._prompts.tokenizer)), -np.inf, np.float32)
        for row, shown in zip(result, found, strict=True):
            for text, log_prob in shown.items():
                row[self._ids.get(text, [])] = log_prob
        return result

    def token_id(self, text: str) -> int:
        """See LanguageModel. Raises LongtailError where next tokens are not shown."""
        self.require("choose")
        return self._prompts.token_id(text)

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """See LanguageModel. Without a tokenizer nothing is cut: the server refuses too long a text."""
        return self._prompts.seen(prompts, np.full(len(prompts), max_tokens)) if self._prompts else list(prompts)

    def generate(self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n") -> list[Generation]:
        """See LanguageModel. The mean log-probability is over the tokens that begin before `stop`.

        Raises LongtailError where `max_tokens` leaves no room for a prompt.
        """
        if max_tokens >= self.max_tokens:
            raise LongtailError(f"{max_tokens} new tokens asked of {self.name}, which reads {self.max_tokens} at once")
        sent, lengths = [prompt.document + prompt.context for prompt in prompts], np.zeros(len(prompts), np.int64)
        if self._prompts:
            tokens = self._prompts.prompts(prompts, np.full(len(prompts), max_tokens))
            sent, lengths = _lists(tokens), tokens.lengths

        def read(i: int, choice: Choice) -> Generation:
            shown = (choice.logprobs.tokens or []) if choice.logprobs else []
            return Generation(*answer(choice, stop), int(lengths[i]), len(shown))

        return self._server.ask(sent, read, max_tokens=max_tokens, stop=[stop], logprobs=1)

    def generate_mixture(
        self,
        prompts: Sequence[Prompt],
        log_weights: np.ndarray,
        max_tokens: int,
        stop: str = "\n",
        *,
        sequence_mixture: bool = False,
    ) -> list[Generation]:
        """Always raises LongtailError: the interface shows only a few of the most likely tokens."""
        raise LongtailError(
            f"{self._server.url}: shows only the likeliest next tokens of {self.name}, so it can't generate under the "
            f"mixture; it can still {self._abilities()}"
        )

    def require(self, ability: str) -> None:
        """Raise LongtailError, before any work, where the server lacks one of ABILITIES."""
        if lack := self._lacks.get(ability):
            raise LongtailError(f"{lack}, so {self.name} can't {ABILITIES[ability]}; it can still {self._abilities()}")

    # ------------------------------------------------------------------ what the server can do

    def _abilities(self) -> str:
        return " and ".join(said for ability, said in ABILITIES.items() if ability not in self._lacks)

    def _try_prompts(self) -> Choice:
        """What comes after PROBE. Raises LongtailError where prompts can't be sent as they are to be sent."""
        name, several = f"lm.{self.name}.http", [PROBE, ANOTHER][: self._settings.batch_size]

        def ask(prompts: list[str] | list[list[int]]) -> Choice:
            return self._server.ask(prompts, lambda _, choice: choice, probe=True, **NEXT)[0]

        asked = list(map(self._sent, several))
        try:
            return ask(asked)
        except Unable as error:
            plainer = {f"one prompt in a request; set {name}.batch_size to 1": [self._sent(PROBE)]}
            plainer |= {f"texts, but no token ids; set {name}.tokenizer to null": several}
            plainer |= {f"one text in a request; set {name}.batch_size to 1 and {name}.tokenizer to null": [PROBE]}
            for takes, prompts in plainer.items():
                if prompts != asked:
                    with suppress(Unable):
                        ask(prompts)
                        raise LongtailError(f"{error}: it takes {takes}") from None
            raise

    def _try_scoring(self, first: Choice) -> None:
        """`first` is what comes after PROBE: PROBE with it is scored, and its log-probability must be the same."""
        shown = first.logprobs.tokens if first.logprobs else None
        after = shown[0] if shown and not piece(shown[0]) else ""

        def read(_: int, choice: Choice) -> None:
            tokens = choice.logprobs.tokens or [] if choice.logprobs else []
            more = self._echo["max_tokens"]
            count = len(sent) if self._prompts else prompt_tokens(choice, sent, more)
            values = prompt_log_probs(choice, count, np.arange(1, max(count, 2)), more)
            text = "".join(filter(str.isalpha, "".join(tokens[:count])))
            if self._prompts and PROBE.replace(" ", "") not in text:
                raise LongtailError(
                    f"params.yaml: lm.{self.name}.http.tokenizer is {self._settings.tokenizer}, whose {PROBE!r} is "
                    f"{''.join(tokens)!r} to {self._server.url}; expected the tokenizer of the model there"
                )
            if not self._prompts:
                begins(choice, sent, count)
            known = (first.logprobs.token_logprobs or [None])[0] if after else None
            if known is not None and tokens[:count][-1:] == [after] and abs(values[-1] - known) > SAME:
                raise Unable(
                    f"gives {after!r} after {PROBE!r} the log-probability {values[-1]:.2f} as a "
                    f"prompt's token (echo with logprobs), {known:.2f} as an answer's"
                )

        sent = self._sent(PROBE + after)
        if self._prompts and len(token := self._prompts.tokens([after])[0].values) == 1:
            sent = [*self._sent(PROBE), *token.tolist()]  # the text might be other tokens
        refusals = []
        for self._echo in (ECHO, ECHO_AND_ONE):
            try:
                self._server.ask([sent], read, probe=True, **self._echo)
            except Unable as error:
                refusals.append(error)
            else:
                return
        raise refusals[-1]

    def _try_choosing(self) -> None:
        def read(_: int, choice: Choice) -> None:
            shown, asked = len(likeliest(choice)), self._settings.logprobs
            if shown < asked:
                raise Unable(f"shows {shown} of the likeliest next tokens, {asked} are asked for")

        if not self._prompts:
            raise Unable(f"params.yaml: lm.{self.name}.http.tokenizer is null")
        self._server.ask([self._sent(PROBE)], read, probe=True, **self._one_token)

    def _sent(self, text: str) -> str | list[int]:
        return _lists(self._prompts.prompts([Prompt(text)], np.ones(1, np.int64)))[0] if self._prompts else text

    @property
    def _one_token(self) -> dict[str, int]:
        return {"max_tokens": 1, "logprobs": self._settings.logprobs}

    # ------------------------------------------------------------------ what it says

    def _score_texts(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        shown = [prompt.document + prompt.context for prompt in prompts]
        sent = [text + continuation for text, continuation in zip(shown, continuations, strict=True)]

        def read(i: int, choice: Choice) -> tuple[np.ndarray, np.ndarray]:
            more = self._echo["max_tokens"]
            places = begins(choice, sent[i], prompt_tokens(choice, sent[i], more))
            own = np.flatnonzero(places >= len(shown[i])) if continuations[i] else np.empty(0, np.int64)
            after = np.searchsorted(places, places[own], side="right")  # pieces of a character end where it does
            ends = np.append(places, len(sent[i]))[after] - len(shown[i])
            return prompt_log_probs(choice, len(places), own, more), ends

        found = self._server.ask(sent, read, **self._echo)
        ends = Ragged.of([ends for _, ends in found])
        return Scores([log_probs for log_probs, _ in found], ends.split(byte_counts(continuations, ends)))

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        """The tokens of each text; pieces of characters, which have none, are left out."""
        size = len(self._prompts.tokenizer)
        texts = self._prompts.tokenizer.batch_decode(np.arange(size)[:, None], clean_up_tokenization_spaces=False)
        ids: dict[str, list[int]] = {}
        for id_, text in enumerate(texts):
            if text and "\ufffd" not in text:
                ids.setdefault(text, []).append(id_)
        return ids


def _lack(probe: Callable[[], None]) -> str | None:
    """Why the server can't do what `probe` tries, None where it can."""
    try:
        probe()
    except Unable as error:
        return str(error)
    return None


def _lists(rows: Ragged) -> list[list[int]]:
    return [row.tolist() for row in rows.split(rows.values)]
