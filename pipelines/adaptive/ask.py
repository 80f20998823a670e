"""One question answered by adaptive retrieval, and why: popularity, threshold, passage, attribution (PopQA, §6)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from pipelines import methods
from pipelines.adaptive import rule, subjects
from pipelines.adaptive.pairs import Choice
from pipelines.adaptive.subjects import Reading
from pipelines.answering import answer_files, given_passages, passages, prompts
from pipelines.answering.passages import Opened
from pipelines.errors import LongtailError
from pipelines.language import language

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel, Prompt

PLAIN = "popqa"  # a question without a template gets this set's demonstrations


@dataclass(frozen=True)
class Decision:
    retrieve: bool  # the subject is in the tail, or may be: the answer below the threshold counts
    threshold: (
        float | None
    )  # page views; None if there is none, or the rule is always or never to retrieve
    why: str


@dataclass(frozen=True)
class Passage:
    """What was read. Of several documents together it has the text of all, the rest is the best one's."""

    id: str | None  # None if the language model wrote it (GenRead), as are title and similarity
    title: str | None
    text: str
    similarity: float | None
    measure: str  # what the similarity is, such as cosine (methods.measure)

    @property
    def body(self) -> str:
        """The text without the title that it begins with."""
        return self.text.removeprefix(f"{self.title}\n")


@dataclass(frozen=True)
class Token:
    """A token of the answer: its probability without and with the passage, and the shares of memory and passage."""

    text: str
    closed_book: float
    augmented: float
    memory: float  # share of `augmented` that the model gives the token without the passage (replug/responsibility.py)
    passage: float  # rest of `augmented`: 1 - memory


@dataclass(frozen=True)
class Attribution:
    tokens: list[Token]
    memory: float  # mean share over the tokens
    passage: float  # mean share over the tokens


@dataclass(frozen=True)
class AskedQuestion:
    question: str  # the question in the wording that the language model read
    lm: str  # the language model that answered
    retriever: str
    method: str  # the method of the answer: closed_book, a retriever's or genread
    reading: Reading | None
    decision: Decision
    passage: Passage | None
    answer: str  # empty too for a model whose answers were imported, which can't be asked here
    mean_log_prob: (
        float | None
    )  # the answer's tokens' mean, nats; None if it is empty, or if a server does not show it
    prompt_hash: (
        str  # equal to the evaluation's if it read the same prompt; "" for an imported model
    )
    attribution: (
        Attribution | None
    )  # None without a passage, for an answer without words, and if a server can't score
    note: str  # a sentence on an answer without words, or on one that can't be asked for here; "" for others


def ask(
    question: str,
    lm: str,
    retriever: str,
    chosen: SimpleNamespace,
    *,
    subject: str | None = None,
    data: Path,
    tell: Callable[[Reading | None, Decision, Passage | None], None] = lambda *_: None,
    opened: Opened | None = None,
) -> AskedQuestion:
    """Answer a question by the threshold of its relation, tuned for this language model and retriever.

    `retriever` may be the name of two answers, as thresholds.json has it (`pairs.Choice.name`). Of a language model
    whose answers were imported the decision is all there is. `chosen` are params with the sections seed, language, lm,
    lms, ways, compute, retriever, retrievers, answer, replug and parts; `subject` is a Wikidata id, to choose among
    namesakes. `tell` hears what is known after the decision and after the search. With `opened`, what is opened stays
    there for the next question.
    Raises LongtailError for an empty question, an unknown language model, method or subject, and for a missing file.
    """
    from pipelines.lm.open_lm import open_lm

    if not question.strip():
        raise LongtailError("the question is empty, expected some words")
    choice, opened = Choice.named(lm, retriever), opened or Opened()
    elsewhere = answer_files.elsewhere(chosen.lms, chosen.retrievers, data)
    imported = {choice.popular, choice.tail} <= set(elsewhere.get(lm, ()))
    if not imported and lm not in chosen.lms:
        raise LongtailError(
            f"--lm {lm}: expected a name of params.yaml's lms: {', '.join(chosen.lms) or 'none'}"
            + "".join(f"; or imported: {of} by {', '.join(by)}" for of, by in elsewhere.items())
        )
    known = [name for name in methods.METHODS if name not in methods.ENSEMBLES]
    for method in () if imported else (choice.popular, choice.tail):
        if methods.split(method)[0] not in known:
            wanted = f"a method of {', '.join(known)}, or two as TAIL_below_POPULAR, such as bm25_below_dense"
            raise LongtailError(f"{retriever}: {method} can't answer here, expected {wanted}")
    reading = subjects.read_question(
        question, data, subject, language.read_language(chosen.language)
    )
    decision = decide_question(reading, data / "adaptive/popularity/thresholds.json", lm, retriever)
    tell(reading, decision, None)
    method, asked = choice.tail if decision.retrieve else choice.popular, " ".join(question.split())
    if reading:
        name = reading.subject.name if reading.subject else reading.name
        asked = reading.template.asked.replace("{}", name)
    answered = partial(AskedQuestion, asked, lm, retriever, method, reading, decision)
    if imported:
        note = f"{method} of {lm}, which answers elsewhere: its answers were imported"
        return answered(None, "", None, "", None, note)

    def open_model() -> LanguageModel:
        weights = data / "models/lm" / lm, chosen.lm[lm], chosen.compute
        return opened.get("model", lambda: open_lm(*weights), weights[:1], *weights)

    # An index is searched before the language model is opened, which takes longer to fail.
    source, passage, attribution = opened.source(method, chosen, data), None, None
    if method == "genread":
        source = passages.open_source(method, open_model(), chosen, data)
    (prompt,), alone, rows = passages.prompts_of_question(
        chosen, *_place(asked, reading, chosen, data), lm, source
    )
    if rows is not None:
        first = rows.slice(0, 1).to_pylist()[0]
        best = (first[name][0] for name in ("doc_ids", "titles", "texts", "similarities"))
        passage = Passage(*best, methods.measure(method, chosen))
        tell(reading, decision, passage)
    model = open_model()
    (generation,) = model.generate([prompt], chosen.answer.new_tokens)
    answer = generation.text.strip()
    note = (
        ""
        if any(map(str.isalnum, answer))
        else "The answer has no word"
        if answer
        else "The answer is empty"
    )
    note = note and f"{note}, so nothing of it is attributed to memory or to a passage."
    if passage and not note and model.scores:
        attribution = attribute_answer(model, alone, prompt, generation.text)
    probability = generation.mean_log_prob if math.isfinite(generation.mean_log_prob) else None
    return answered(passage, answer, probability, prompts.prompt_hash(prompt), attribution, note)


def decide_question(reading: Reading | None, thresholds: Path, lm: str, retriever: str) -> Decision:
    """Retrieve if the subject has fewer page views than its relation's threshold, or if one of the two is not known.

    Of two answers (`pairs.Choice.name`), to retrieve is to take the one below the threshold.
    """
    subject, lacks, in_use = reading and reading.subject, "", None
    if reading is None:
        lacks = "The question follows no template of this run"
    elif subject is None:
        lacks = f"No subject in this run's tables is called {reading.name!r}"
    elif subject.popularity is None:
        lacks = f"The page views of {subject.label} ({subject.qid}) are not known"
    elif not thresholds.is_file():
        raise LongtailError(f"{thresholds}: no such file; `longtail run` writes it")
    else:
        tuned = json.loads(thresholds.read_text(encoding="utf-8"))["rules"]
        in_use = tuned.get(reading.template.dataset, {}).get(lm, {}).get(retriever)
        lacks = "" if in_use else f"No threshold is tuned for {lm} with {retriever}"
    if lacks:
        return Decision(
            True,
            None,
            f"{lacks}, so {Choice.named(lm, retriever).tail} answers without a threshold.",
        )
    file = rule.parse(in_use, str(thresholds))
    retrieve, threshold, why = file.decide(reading.template.relation, subject.popularity)
    of_thresholds = file.policy == rule.THRESHOLDS and math.isfinite(threshold)
    why = f"{subject.popularity:,} views a month; {why}"
    return Decision(retrieve, threshold if of_thresholds else None, why)


def attribute_answer(
    lm: LanguageModel, closed_book: Prompt, augmented: Prompt, answer: str
) -> Attribution:
    """What the answer owes to the model's memory and to the passage, from its probability after both prompts."""
    from pipelines.replug import responsibility

    scores = lm.score([closed_book, augmented], [answer, answer])
    log_probs, n_bytes = scores.log_probs, scores.bytes[0]
    if len(log_probs[0]) != len(
        log_probs[1]
    ):  # if a server cuts a text in two ways, the answer counts as one token
        log_probs, n_bytes = (
            [values.sum(keepdims=True) for values in log_probs],
            n_bytes.sum(keepdims=True),
        )
    alone, read = np.stack(log_probs).astype(np.float64)  # (tokens,) each
    memory = np.exp(
        np.minimum(alone - read, 0.0)
    )  # of one passage, memory's share is min(1, p_0 / p)
    columns = np.exp(alone), np.exp(read), memory, 1 - memory
    texts = responsibility.token_texts(answer, n_bytes)
    tokens = [Token(*token) for token in zip(texts, *(of.tolist() for of in columns), strict=True)]
    return Attribution(tokens, float(memory.mean()), float(1 - memory.mean()))


def answer_lines(asked: AskedQuestion) -> Iterator[str]:
    """What was asked, found and decided, in a line each. The answer comes last."""
    if reading := asked.reading:
        template, others = reading.template, reading.candidates[1:]
        relation = (
            template.relation
            if template.name == template.relation
            else f"{template.name} ({template.relation})"
        )
        yield f"relation: {relation}, by the template {template.wording!r} of {template.dataset}"
        yield f"asked: {asked.question}"
        if subject := reading.subject:
            namesakes = f"; {len(others)} more of that name (--subject QID)" if others else ""
            yield f"subject: {subject.label} ({subject.qid}){namesakes}"
            for candidate in reading.candidates if others else []:
                views = "unknown" if candidate.popularity is None else f"{candidate.popularity:,}"
                stated = (
                    f"{template.name} known" if candidate.states else f"no {template.name} known"
                )
                title = f"{candidate.label} [{candidate.title or 'no article'}]"
                yield f"  {candidate.qid:>10} {views:>12} views  {title}, {stated}"
    known = reading and reading.subject and reading.subject.popularity is not None
    yield f"{'popularity' if known else 'note'}: {asked.decision.why}"
    yield f"rule: {asked.retriever} of {asked.lm}; {asked.method} answers"
    if not asked.prompt_hash:
        yield f"decision: {asked.note}"
        return
    passage, attribution = asked.passage, asked.attribution
    if passage:
        found = (
            passage.id
            and f"{passage.title} ({passage.id}, {passage.measure} {passage.similarity:.3f})"
        )
        yield f"passage: {found or asked.lm}: {' '.join(passage.body.split())}"
    if attribution:
        yield f"{'closed-book':>12} {'augmented':>10} {'memory':>8} {'passage':>8}  token"
        for token in attribution.tokens:
            shares = f"{token.memory:>8.1%} {token.passage:>8.1%}"
            yield f"{token.closed_book:>12.3g} {token.augmented:>10.3g} {shares}  {token.text!r}"
        shares = f"{attribution.passage:.0%} from the passage, {attribution.memory:.0%} from memory"
        yield f"attribution: {shares} (means over tokens)"
    elif asked.note:
        yield f"note: {asked.note}"
    elif passage:
        yield "attribution: not known, as the language model's server does not score texts"
    else:
        yield "attribution: memory alone, nothing was read"
    yield f"answer: {asked.answer}"


def _place(
    asked: str, reading: Reading | None, chosen: SimpleNamespace, data: Path
) -> tuple[str, prompts.Questions, int]:
    """A question set, and the place of `asked` in it: its subject's question's, or after all others."""
    dataset = reading.template.dataset if reading else PLAIN
    table = given_passages.read_asked(dataset, chosen, data)[0].sort_by("question_id")
    pool, uris = prompts.read_questions(table), table["s_uri"].to_pylist()
    qid = reading.subject.qid if reading and reading.subject else None
    for place, text in enumerate(pool.texts):
        if text == asked and (uris[place] or "").endswith(f"/{qid}"):
            return dataset, pool, place
    relations = np.append(pool.relations, reading.template.relation if reading else "")
    return (
        dataset,
        replace(pool, ids=[*pool.ids, asked], texts=[*pool.texts, asked], relations=relations),
        len(uris),
    )
