"""HttpModel: a language model behind OpenAI's completions or chat interface.

It may be served by vLLM, llama.cpp or a paid service.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.lm.http_client import CompletionsClient
from pipelines.lm.language_model import (
    Generation,
    Prompt,
    Scores,
    check_room,
)
from pipelines.lm.ragged import joined
from pipelines.lm.server_answers import TOLERANCE, Choice, Unable, are_known
from pipelines.lm.server_mixture import Mixture, Shown, generate_under
from pipelines.lm.token_prompts import PromptTokenizer, read_tokenizer
from pipelines.params import params

PROBE = "one two three"
ECHOED_PROBE = re.compile(rf"(<[^<>]+>\s*)*{PROBE}")  # perhaps after marks of a text's beginning
CHAT_PROBE_TOKENS = 256  # tokens of a chat's answer to PROBE; reasoning shows in them
PROBE_TOKENS = 8  # tokens of the answer to PROBE as a text
RAW_LOG_PROBS = "have it show the model's own (vLLM: --logprobs-mode raw_logprobs)"
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

        # The fields of a request that ask for an answer's log-probabilities.
        self._log_prob_fields = {"logprobs": 1}
        self._no_scores = ""  # why the server shows no log-probabilities of prompts
        self._chooses = False  # whether it shows the likeliest tokens
        sent, _ = self._as_sent([Prompt(PROBE)], 1)
        self._client.harmless = sent[0]
        self._find_out()

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

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel.

        Raises LongtailError where the server shows no log-probabilities of prompts, or there is no
        tokenizer.
        """
        self.require_scores()
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

    def choose(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> np.ndarray:
        """See LanguageModel. All but the `http.logprobs` likeliest tokens are -inf."""
        log_probs = np.full((len(prompts), len(texts)), np.nan)
        if not self._chooses:
            return log_probs
        columns = self._columns_of_shown(texts)
        log_probs[:, [*columns.values()]] = -np.inf
        sent, _ = self._as_sent(prompts, 1)

        def read(_: int, choice: Choice) -> dict[str, float]:
            return choice.likeliest()

        shown = self._client.ask(sent, read, max_tokens=1, logprobs=self._settings.logprobs)
        for row, likeliest in zip(log_probs, shown, strict=True):
            for text, log_prob in likeliest.items():
                if self._client.chat:
                    text = text.strip()  # a chat may put a space before its first word
                column = columns.get(text)
                if column is not None:
                    row[column] = np.logaddexp(row[column], log_prob)
        return log_probs

    def _columns_of_shown(self, texts: Sequence[str]) -> dict[str, int]:
        """The number of each text that is one token, by how the server shows the token."""
        if not self._tokenizer:
            return {text: column for column, text in enumerate(texts)}
        columns = {}
        for text, token in self._tokenizer.token_ids(texts).items():
            columns[self._tokenizer.decode([token], special=True)] = texts.index(text)
        return columns

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

        ask = partial(self._client.ask, may_be_refused=True)
        fields = {"max_tokens": max_tokens} | self._log_prob_fields
        if self._client.chat:
            generations = ask(sent, read, **fields)
        else:
            generations = ask(sent, read, stop=[stop], **fields)
            empty = [i for i, made in enumerate(generations) if not (made.text or made.unanswered)]

            def read_again(i: int, choice: Choice) -> Generation:
                return read(empty[i], choice)

            again = ask([sent[i] for i in empty], read_again, **fields)
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
        answer = choice.answer(stop, self.votes, prompt.document + prompt.context)
        remarks = list(answer.remarks)
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
        """See LanguageModel. Sends each prompt once for each token of the answer."""
        sent, _ = self._as_sent(prompts, max_tokens)
        k = log_weights.shape[1]
        count = self._settings.logprobs
        fields = {"max_tokens": 1, "logprobs": count} | self._by_ids

        def read(_: int, choice: Choice) -> Shown:
            likeliest = choice.likeliest()
            return {self._token(text): log_prob for text, log_prob in likeliest.items()}

        def ask(prompts: list[list[int]]) -> list[Shown | Generation]:
            return self._client.ask(prompts, read, times=max_tokens, may_be_refused=True, **fields)

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
    def _ids_of_texts(self) -> dict[str, list[int]]:
        """The ids of the tokens with each text; parts of characters have none."""
        texts = self._tokenizer.texts_of_ids(len(self._tokenizer.tokenizer))
        ids: dict[str, list[int]] = {}
        for id_, text in enumerate(texts):
            if text and "\ufffd" not in text:
                ids.setdefault(text, []).append(id_)
        return ids

    @cached_property
    def _by_ids(self) -> dict[str, bool]:
        """The field of a request that has vLLM show tokens by their ids.

        There is no such field for a server that refuses it.
        """

        def read(_: int, choice: Choice) -> None:
            pass

        try:
            self._probe(read, max_tokens=1, logprobs=1, **BY_IDS)
        except Unable:
            return {}
        return BY_IDS

    # ------------------------------------------------------------------ what the server can do

    def require_scores(self) -> None:
        """Raise LongtailError where the server shows no log-probabilities of prompts."""
        if not self.scores:
            raise LongtailError(f"{self._no_scores}, so {self.name} can't score texts")

    def _find_out(self) -> None:
        """Find out by small requests what the server can do.

        Wrong numbers look like any others, so they are compared. Scoring needs `echo` with
        `logprobs`. Many servers accept that and leave log-probabilities out, or give wrong ones.
        """
        first = self._first_answer()
        if first.other_model:
            print(f"{self.name}: answers are of {self._served(first)} ({self._client.url})")
        reasons, _ = first.spoken()
        if reasons:
            print(f"{self.name}: {reasoning.CUT_OFF}")
        self.votes = self._can_vote(first)
        try:
            self._try_scoring(first)
        except Unable as error:
            self._no_scores = str(error)
        self.scores = not self._no_scores
        if not reasons:  # its first token would be one of reasoning
            self._chooses = self._can_choose()
        # A mixture needs both, and prompts that it can go on by token ids.
        self.mixes = self._chooses and self.votes and self._tokenizer is not None

    def _can_vote(self, first: Choice) -> bool:
        """Whether answers such as the `first` have log-probabilities of their own."""
        reasons, text = first.spoken()
        if reasons:
            return False
        if text or not self._log_prob_fields or first.logprobs.tokens:
            return are_known(first.logprobs.token_logprobs)
        return True  # of an answer without a text, a server may show none although it can

    def _first_answer(self) -> Choice:
        """The answer to PROBE.

        Raises LongtailError where the server can't take prompts in this form, or begins a text's
        continuation with the text.
        """
        url = self._client.url
        key = f"lm.{self.name}.http"
        most_tokens = CHAT_PROBE_TOKENS if self._client.chat else PROBE_TOKENS
        max_tokens = min(most_tokens, self.max_tokens // 2)

        def read(_: int, choice: Choice) -> Choice:
            # An answer that is refused here is not kept, so that it is asked for again.
            choice.spoken()
            if not self._client.chat and ECHOED_PROBE.match(choice.text):
                raise LongtailError(
                    f"{url}: begins answers with their prompt; switch that off there, or write "
                    f"echo: false into {key}.extra"
                )
            return choice

        try:
            return self._probe(read, max_tokens=max_tokens, **self._log_prob_fields)
        except Unable as error:
            if not self._client.chat:
                raise LongtailError(
                    f"{error}; if it takes texts alone, no token ids, set {key}.tokenizer to null"
                ) from None
        self._log_prob_fields = {}  # the server refuses to show log-probabilities
        return self._probe(read, max_tokens=max_tokens)

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
        prompt = list(self._client.harmless)
        after = first.logprobs.tokens[0] if first.logprobs.tokens else ""
        following = self._tokenizer.tokens([after])[0].values.tolist()
        # Servers write parts of a character in different ways.
        is_whole = len(following) == 1 and "\ufffd" not in after
        comparable = is_whole and first.logprobs.token_logprobs
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

        self._client.ask([prompt], read, probe=True, **ECHO)

    def _can_choose(self) -> bool:
        """Whether the server shows the likeliest tokens after PROBE."""
        if not (self._tokenizer or self._client.chat):
            return False
        wanted = self._settings.logprobs

        def read(_: int, choice: Choice) -> None:
            likeliest = choice.likeliest()
            if len(likeliest) < wanted or not any(likeliest.values()):
                raise Unable("shows too few of the likeliest tokens")  # which is not kept

        try:
            self._probe(read, max_tokens=1, logprobs=wanted)
        except Unable:
            return False
        return True

    def _probe(self, read: Callable[[int, Choice], Any], **fields) -> Any:
        """`read` of the answer to PROBE."""
        return self._client.ask([self._client.harmless], read, probe=True, **fields)[0]
