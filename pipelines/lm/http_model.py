"""HttpModel: a language model behind OpenAI's completions or chat interface.

It may be served by vLLM, llama.cpp or a paid service.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.lm.http_client import CompletionsClient
from pipelines.lm.language_model import (
    ECHOED,
    Generation,
    Prompt,
    Scores,
    check_room,
    no_answer,
)
from pipelines.lm.ragged import joined
from pipelines.lm.server_answers import FLOOR, TOLERANCE, Choice, Unable, fault
from pipelines.lm.server_mixture import Mixture, Shown, generate_under
from pipelines.lm.token_prompts import PromptTokenizer, read_tokenizer
from pipelines.params import params

PROBE = "one two three"
SHORTER_PROBE = "one two"
ECHOED_PROBE = re.compile(rf"(<[^<>]+>\s*)*{PROBE}")  # perhaps after marks of a text's beginning
TEXT_SHOWN = 80  # characters of an answer in a message
CHAT_PROBE_TOKENS = 256  # tokens of a chat's answer to PROBE; reasoning shows in them
PROBE_TOKENS = 8  # tokens of the answer to PROBE as a text
RAW_LOG_PROBS = "have it show the model's own (vLLM: --logprobs-mode raw_logprobs)"
ABILITIES = {
    "score": "score texts",
    "choose": "choose between options",
    "generate": "generate answers",
    "vote": "vote",
    "mix": "generate under the mixture",
}
BY_IDS = {"return_tokens_as_token_ids": True}
TOKEN_ID = re.compile(r"token_id\D(\d+)")  # how vLLM writes a token if it is asked for ids
# The fields that score a prompt. Some servers refuse 0 as max_tokens, or take it as no limit.
ECHO = {"max_tokens": 1, "echo": True, "logprobs": 1}


class HttpModel:
    """The LanguageModel `lm.path` of the server `lm.http.url`.

    Answers and costs are kept in the folder `cache`. With `http.tokenizer`, which is saved in
    `folder`, prompts are sent as token ids and cut as Prompt says. Without it they are sent as
    texts, with `lm.chat` to the chat interface. The server then tokenises them and refuses long
    ones, and can't score or mix.
    """

    def __init__(self, folder: Path, lm: params.LM, key: str | None, cache: Path) -> None:
        """Find out what the server can do.

        Raises LongtailError where it does not serve the model, or the tokenizer is another model's.
        """
        self.name = Path(folder).name
        self.max_tokens = lm.http.max_tokens
        self.begins = "" if lm.chat else " "
        self._settings = lm.http
        self._tokenizer: PromptTokenizer | None = None
        if lm.http.tokenizer:
            tokenizer = read_tokenizer(folder)
            self._tokenizer = PromptTokenizer(tokenizer, folder, self.name, self.max_tokens)
        self._client = CompletionsClient(
            name=self.name,
            model=lm.path,
            settings=lm.http,
            key=key,
            cache=cache,
            chat=lm.chat,
        )
        self.usage = self._client.usage
        self._lock = threading.Lock()
        self._counted_until = 0.0  # the time until which seconds count for some task

        # The fields of a request that ask for an answer's log-probabilities.
        self._log_prob_fields = {"logprobs": 1}
        self._echoing = False  # whether answers begin with their prompt
        self._lacks: dict[str, str] = {}  # ability -> why the server lacks it
        self._client.harmless = self._as_probe(PROBE)
        self._find_out()
        self.scores = "score" not in self._lacks
        self.mixes = "mix" not in self._lacks
        self.votes = "vote" not in self._lacks

    @contextmanager
    def side_by_side(self, tasks: int) -> Iterator[Executor]:
        """Threads for so many tasks that ask the server at the same time.

        All tasks together have `http.concurrency` requests under way. Requests are sent in the
        order of their tasks. After an error in the block, no task asks more.
        """
        with self._client.sending(), ThreadPoolExecutor(tasks) as pool:
            try:
                yield pool
            except BaseException as error:
                self._client.stop(error)
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def took(self, started: float, ended: float) -> float:
        """The seconds of a task between two times, without those that count for an earlier task."""
        with self._lock:
            first = max(started, self._counted_until)
            self._counted_until = max(ended, self._counted_until)
        return max(0.0, ended - first)

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel.

        Raises LongtailError where the server shows no log-probabilities of prompts, or there is no
        tokenizer.
        """
        self.require("score")
        tokens, byte_counts = self._tokenizer.continuations(continuations)
        prompt_tokens = self._tokenizer.prompts(prompts, tokens.lengths)
        pairs = joined([prompt_tokens, tokens])
        nonempty = np.flatnonzero(tokens.lengths)
        sent = pairs.take(nonempty).tolist()
        lasts = tokens.lengths[nonempty]

        def read(i: int, choice: Choice) -> np.ndarray:
            length = len(sent[i])
            return choice.prompt_log_probs(length, np.arange(length - lasts[i], length))

        scored = self._client.ask(sent, read, lasts=lasts, **ECHO)
        log_probs = [np.empty(0, np.float32)] * len(prompts)
        for row, scores in zip(nonempty, scored, strict=True):
            log_probs[row] = scores
        return Scores(log_probs, byte_counts.split(byte_counts.values.astype(np.int32)))

    def fits(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> np.ndarray:
        """See LanguageModel."""
        return self._tokenizer.fits(prompts, continuations)

    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """See LanguageModel. All but the `http.logprobs` likeliest tokens are -inf.

        Where several tokens have a text that the server shows, each gets its log-probability. In a
        chat, the vocabulary are the texts that `token_id` was asked for, with and without a space
        before.
        """
        self.require("choose")
        sent, _ = self._as_sent(prompts, 1)

        def read(_: int, choice: Choice) -> dict[str, float]:
            return choice.likeliest()

        shown = self._client.ask(sent, read, max_tokens=1, logprobs=self._settings.logprobs)
        with self._lock:  # other threads ask for the ids of further texts
            ids_of_texts = dict(self._ids_of_texts)
        size = len(self._tokenizer.tokenizer if self._tokenizer else ids_of_texts)
        result = np.full((len(prompts), size), -np.inf, np.float32)
        for row, likeliest in zip(result, shown, strict=True):
            for text, log_prob in likeliest.items():
                if not self._tokenizer:
                    text = text.strip()  # a chat may put a space before its first word
                ids = ids_of_texts.get(text, [])
                row[ids] = np.logaddexp(row[ids], log_prob)
        return result

    @cached_property
    def _ids_of_texts(self) -> dict[str, list[int]]:
        """The ids of the tokens with each text; parts of characters have none."""
        if not self._tokenizer:
            return {}
        texts = self._tokenizer.texts_of_ids(len(self._tokenizer.tokenizer))
        ids: dict[str, list[int]] = {}
        for id_, text in enumerate(texts):
            if text and "\ufffd" not in text:
                ids.setdefault(text, []).append(id_)
        return ids

    def token_id(self, text: str) -> int:
        """See LanguageModel. Raises LongtailError where the server shows no next tokens."""
        self.require("choose")
        if not self._tokenizer:
            with self._lock:
                return self._ids_of_texts.setdefault(text, [len(self._ids_of_texts)])[0]
        return self._tokenizer.token_id(text)

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """See LanguageModel. Without a tokenizer the server refuses what is too long."""
        if not self._tokenizer:
            return list(prompts)
        return self._tokenizer.seen(prompts, max_tokens)

    def generate(
        self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n"
    ) -> list[Generation]:
        """See LanguageModel. Raises LongtailError where `max_tokens` leaves no room for a prompt.

        A server stops at once where a text begins with the stop string. It is then asked again
        without one, and both requests count. A chat is never sent a stop string, because some
        services refuse white space there.
        """
        sent, lengths = self._as_sent(prompts, max_tokens)
        reasoned: set[int] = set()

        def read(i: int, choice: Choice) -> Generation:
            if choice.spoken()[0]:
                reasoned.add(i)
            return self._generation(choice, prompts[i], int(lengths[i]), stop)

        ask = partial(self._client.ask, refused=no_answer)
        fields = {"max_tokens": max_tokens} | self._log_prob_fields
        if self._client.chat:
            generations = ask(sent, read, **fields)
        else:
            generations = ask(sent, read, stop=[stop], **fields)
            empty = []
            for i, generation in enumerate(generations):
                if not generation.text and not generation.unanswered:
                    empty.append(i)

            def read_again(i: int, choice: Choice) -> Generation:
                return read(empty[i], choice)

            sent_again = [sent[i] for i in empty]
            again = ask(sent_again, read_again, **fields)
            for i, second in zip(empty, again, strict=True):
                first = generations[i]
                generations[i] = replace(
                    second,
                    prompt_tokens=first.prompt_tokens + second.prompt_tokens,
                    new_tokens=first.new_tokens + second.new_tokens,
                )

        with self._lock:
            self.usage["lm_reasoned"] += len(reasoned)
        return generations

    def _generation(
        self, choice: Choice, prompt: Prompt, prompt_tokens: int, stop: str
    ) -> Generation:
        """The answer to a prompt of so many tokens, 0 if the server alone knows them."""
        answer = choice.answer(stop, "vote" not in self._lacks, prompt.document + prompt.context)
        remarks = list(answer.remarks)
        if self._echoing and ECHOED not in remarks:
            raise Unable(
                "begins its answers with their prompt, which can't be told from the answer in "
                f"{choice.text[:TEXT_SHOWN]!r}; switch echo off there"
            )
        if choice.other_model:
            remarks.append(f"are of {self._served(choice)}")
        new_tokens = len(choice.logprobs.tokens)
        if choice.usage:
            prompt_tokens = choice.usage.prompt_tokens
            new_tokens = choice.usage.completion_tokens
        return Generation(
            text=answer.text,
            mean_log_prob=answer.mean_log_prob,
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            remarks=tuple(remarks),
        )

    def _served(self, choice: Choice) -> str:
        """Which other model answered."""
        return f"{choice.other_model}, where {self._client.model} was asked for"

    def _as_sent(
        self, prompts: Sequence[Prompt], max_tokens: int
    ) -> tuple[list[str] | list[list[int]], np.ndarray]:
        """Prompts as token ids that leave room for `max_tokens`, or as texts, and their lengths.

        The lengths (prompts,) are in tokens, 0 if unknown.
        """
        check_room(self, max_tokens)
        if not self._tokenizer:
            texts = [prompt.document + prompt.context for prompt in prompts]
            return texts, np.zeros(len(prompts), np.int64)
        tokens = self._tokenizer.prompts(prompts, max_tokens)
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
        """See LanguageModel. Raises LongtailError where the server can't mix.

        Sends each prompt once for each token of the answer.
        """
        self.require("mix")
        sent, _ = self._as_sent(prompts, max_tokens)
        k = log_weights.shape[1]
        count = self._settings.logprobs
        fields = {"max_tokens": 1, "logprobs": count} | self._by_ids

        def read(_: int, choice: Choice) -> Shown:
            likeliest = choice.likeliest()
            return {self._token(text): log_prob for text, log_prob in likeliest.items()}

        def ask(prompts: list[list[int]]) -> list[Shown | str]:
            return self._client.ask(prompts, read, times=max_tokens, refused=str, **fields)

        mixtures = []
        for question, weights in enumerate(log_weights):
            prompts_of_question = sent[question * k : (question + 1) * k]
            mixture = Mixture(prompts_of_question, weights, count, moving=sequence_mixture)
            mixtures.append(mixture)
        generations = generate_under(mixtures, ask, self._tokenizer, max_tokens, stop)
        n_undecided = sum(not generation.decided for generation in generations)
        with self._lock:
            self.usage["lm_undecided"] += n_undecided
        return generations

    def _token(self, text: str) -> int | str:
        """The id of the token with a text; the text where it is not one token's alone."""
        with_id = TOKEN_ID.fullmatch(text)
        if with_id:
            return int(with_id[1])
        ids = self._ids_of_texts.get(text, ())
        return ids[0] if len(ids) == 1 else text

    @cached_property
    def _by_ids(self) -> dict[str, bool]:
        """The field of a request that has vLLM show tokens by their ids.

        There is no such field for a server that refuses it.
        """

        def read(_: int, choice: Choice) -> None:
            pass

        try:
            self._probe([self._as_probe(PROBE)], read, max_tokens=1, logprobs=1, **BY_IDS)
        except Unable:
            return {}
        return BY_IDS

    # ------------------------------------------------------------------ what the server can do

    def require(self, ability: str) -> None:
        """Raise LongtailError where the server lacks one of ABILITIES."""
        if ability not in self._lacks:
            return
        reason = self._lacks[ability]
        remaining = [what for name, what in ABILITIES.items() if name not in self._lacks]
        others = " and ".join(remaining)
        raise LongtailError(
            f"{reason}, so {self.name} can't {ABILITIES[ability]}; it can still {others}"
        )

    def _find_out(self) -> None:
        """Find out by small requests what the server can do.

        Wrong numbers look like any others, so they are compared. Scoring needs `echo` with
        `logprobs`. Many servers accept that and leave log-probabilities out, or give wrong ones.
        """
        url = self._client.url
        first = self._without_echo(self._first_answer())
        if first.other_model:
            print(f"{self.name}: answers are of {self._served(first)} ({url})")
        if first.spoken()[0]:
            print(f"{self.name}: {reasoning.CUT_OFF}")
        no_vote = self._why_no_vote(first)
        if no_vote:
            self._lacks["vote"] = f"{url}: {no_vote}"

        for ability, probe in (("score", self._try_scoring), ("choose", self._try_choosing)):
            try:
                probe(first)
            except Unable as error:
                self._lacks[ability] = str(error)

        if self._client.chat:
            self._lacks["mix"] = f"{url}: a chat interface continues no text"
            return
        for needed in ("choose", "vote"):
            if needed in self._lacks:
                self._lacks["mix"] = self._lacks[needed]
                return

    def _why_no_vote(self, first: Choice) -> str:
        """Why log-probabilities of answers such as the `first` tell nothing, "" if they do."""
        reasons, text = first.spoken()
        if reasons:
            return "shows no log-probabilities apart from those of its reasoning"
        if self._echoing:
            return "begins its answers with their prompt"
        # Of an answer without a text, a server may show no log-probabilities although it can.
        if text or not self._log_prob_fields or first.logprobs.tokens:
            wrong = fault(first.logprobs.token_logprobs)
            if wrong:
                return f"shows {wrong} of its answers; {RAW_LOG_PROBS}"
        return ""

    def _first_answer(self) -> Choice:
        """The answer to PROBE.

        Raises LongtailError where the server can't take prompts in this form.
        """
        prompts = [self._as_probe(PROBE)]
        max_tokens = min(CHAT_PROBE_TOKENS, self.max_tokens // 2)
        if not self._client.chat:
            if self._settings.batch_size > 1:
                prompts.append(self._as_probe(SHORTER_PROBE))
            max_tokens = min(PROBE_TOKENS, self.max_tokens // 2)

        def read(_: int, choice: Choice) -> Choice:
            choice.spoken()  # an answer without a text is not kept, so that it is asked for again
            return choice

        try:
            return self._probe(prompts, read, max_tokens=max_tokens, **self._log_prob_fields)
        except Unable as error:
            if not self._client.chat:
                key = f"lm.{self.name}.http"
                raise LongtailError(
                    f"{error}; if it takes one prompt in a request, set {key}.batch_size to 1, "
                    f"and if it takes texts alone, no token ids, {key}.tokenizer to null as well"
                ) from None
        self._log_prob_fields = {}  # the server refuses to show log-probabilities
        return self._probe(prompts, read, max_tokens=max_tokens)

    def _without_echo(self, first: Choice) -> Choice:
        """The answer to PROBE without PROBE at its beginning, as a server's default for `echo` is.

        Where `echo: false` does not help either, it is taken off each answer.
        """
        if not self._echoes(first):
            return first
        self._client.defaults = {"echo": False}
        answer = first
        with suppress(LongtailError):
            answer = self._first_answer()
        self._echoing = self._echoes(answer)
        does = "which is taken off" if self._echoing else "without which it is asked (echo: false)"
        if self._echoing:
            self._client.defaults = {}
        print(f"{self.name}: the server begins answers with their prompt, {does}")
        return answer

    def _echoes(self, first: Choice) -> bool:
        """Whether the answer to PROBE begins with it.

        A model that says it again puts a space or a line break before it.
        """
        return not self._client.chat and ECHOED_PROBE.match(first.text) is not None

    def _try_scoring(self, first: Choice) -> None:
        """Score PROBE with the token that was generated after it, in the answer `first`.

        Raises Unable where the token's log-probability differs as a prompt's and as an answer's.
        """
        if self._client.chat:
            raise Unable(
                f"{self._client.url}: a chat interface shows no log-probabilities of prompts"
            )
        if not self._tokenizer:
            raise Unable(f"params.yaml: lm.{self.name}.http.tokenizer is null")
        prompt = self._as_probe(PROBE)
        after = first.logprobs.tokens[0] if first.logprobs.tokens else ""
        following = self._tokenizer.tokens([after])[0].values.tolist()
        # Servers write parts of a character in different ways.
        is_piece = not after or "\ufffd" in after or after.startswith("bytes:")
        comparable = len(following) == 1 and first.logprobs.token_logprobs and not is_piece
        if comparable:
            prompt += following

        def read(_: int, choice: Choice) -> None:
            positions = np.arange(1, len(prompt))  # the first token follows nothing
            values = choice.prompt_log_probs(len(prompt), positions)
            tokens = choice.logprobs.tokens[: len(prompt)]
            if not values.any():
                raise Unable(
                    f"gives log-probabilities that are all 0 (echo with logprobs); {RAW_LOG_PROBS}"
                )
            text = "".join(tokens)
            letters = "".join(filter(str.isalpha, text))
            if PROBE.replace(" ", "") not in letters:
                name = self._settings.tokenizer
                raise LongtailError(
                    f"params.yaml: lm.{self.name}.http.tokenizer is {name}, whose {PROBE!r} is "
                    f"{text!r} to {self._client.url}; expected the tokenizer of the model there"
                )
            if comparable and tokens[-1:] == [after]:
                expected = first.logprobs.token_logprobs[0]
                if abs(values[-1] - expected) > TOLERANCE:
                    raise Unable(
                        f"gives {after!r} after {PROBE!r} the log-probability {values[-1]:.2f} as "
                        f"a prompt's token (echo with logprobs), {expected:.2f} as an answer's"
                    )

        self._probe([prompt], read, **ECHO)

    def _try_choosing(self, first: Choice) -> None:
        """Have the server show the likeliest tokens after PROBE. Raises Unable where it can't."""
        wanted = self._settings.logprobs
        if first.spoken()[0]:
            raise Unable(f"{self._client.url}: the first token is one of reasoning")
        if self._echoing:
            raise Unable(f"{self._client.url}: the first token is one of the prompt")

        def read(_: int, choice: Choice) -> None:
            likeliest = choice.likeliest()
            if len(likeliest) < wanted:
                raise Unable(
                    f"shows {len(likeliest)} of the likeliest next tokens, {wanted} are asked for"
                )
            if all(value == 0 or value <= FLOOR for value in likeliest.values()):
                raise Unable(
                    "shows likeliest next tokens whose log-probabilities are all 0 or "
                    f"{FLOOR:g}; {RAW_LOG_PROBS}"
                )

        if not (self._tokenizer or self._client.chat):
            raise Unable(f"params.yaml: lm.{self.name}.http.tokenizer is null")
        self._probe([self._as_probe(PROBE)], read, max_tokens=1, logprobs=wanted)

    def _probe(self, prompts: list, read: Callable[[int, Choice], Any], **fields) -> Any:
        """`read` of the answer to the first of the prompts."""
        return self._client.ask(prompts, read, probe=True, **fields)[0]

    def _as_probe(self, text: str) -> str | list[int]:
        """The text as prompts are sent: token ids with a tokenizer, the text itself without."""
        sent, _ = self._as_sent([Prompt(text)], 1)
        return sent[0]
