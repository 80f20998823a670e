"""Questions of one's own: asked one after the other in the background, with what is known of each so far."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines import methods
from pipelines.adaptive import ask
from pipelines.adaptive.ask import Opened
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.subjects import Reading
from pipelines.errors import LongtailError
from pipelines.explorer.run import RUN, Addressed, Run, one_of
from pipelines.storage import database


@dataclass(frozen=True)
class Asked(Addressed):
    PATH = "/ask"
    question: str
    lm: str
    method: str  # that answers below the threshold, or the name of two answers
    subject: str = ""  # Wikidata id; "": the likeliest of that name

    @classmethod
    def of(cls, run: Run, asked: Mapping[str, str]) -> Asked:
        """What some fields ask; LongtailError where no model can answer, and for a value that a field does not have."""
        if not (known := ways(run)):
            searches = "`longtail search WORDS` finds passages" if not run.params.lms else RUN
            raise LongtailError(f"no language model answers with passages here; {searches}")
        lm = one_of(asked, "lm", known, next(iter(known)))
        chosen = run.params
        tuned = bool(chosen.retrievers) and chosen.retrievers[0] in chosen.parts.tuned
        best = next(
            (name for name in ("lsr" if tuned else "dense", "bm25") if name in known[lm]),
            known[lm][0],
        )
        method = asked.get("method") if asked.get("method") in known[lm] else best
        return cls(asked.get("question", "")[:2000], lm, method, asked.get("subject", ""))


@dataclass
class Job:
    """A question at work; `working` says at what, and is empty at the end."""

    working: str = "Waiting for an earlier question"
    reading: Reading | None = None
    decision: ask.Decision | None = None
    passage: ask.Passage | None = None
    result: ask.AskedQuestion | None = None
    error: str = ""

    def tell(
        self, reading: Reading | None, decision: ask.Decision, passage: ask.Passage | None
    ) -> None:
        self.reading, self.decision, self.passage = reading, decision, passage
        self.working = (
            "The language model answers" if passage or not decision.retrieve else "Searching"
        )


class Jobs:
    """The questions asked, with their answers; the model and the index of the last one stay open."""

    def __init__(self) -> None:
        self._jobs: dict[Asked, tuple[Run, Job]] = {}
        self._one_at_a_time = threading.Lock()
        self._opened = Opened()

    def get(self, run: Run, asked: Asked) -> Job | None:
        """What is known of a question; None if it was not asked, or only before the run's params changed."""
        of_run, job = self._jobs.get(asked, (run, None))
        return job if of_run is run else None

    def start(self, run: Run, asked: Asked) -> None:
        """Begin to answer, if that was not asked before or ended in an error."""
        if (known := self.get(run, asked)) and not known.error:
            return
        self._jobs[asked] = run, (job := Job())

        def work() -> None:
            with self._one_at_a_time:
                job.working = "Reading the question"
                try:
                    said, more = (
                        (asked.question, asked.lm, asked.method, run.params),
                        {"tell": job.tell},
                    )
                    more |= {
                        "data": run.data,
                        "subject": asked.subject or None,
                        "opened": self._opened,
                    }
                    job.result = ask.ask(*said, **more)
                    job.passage = job.result.passage
                except Exception as error:  # the page says so; its reader can't see this process
                    job.error = (
                        str(error)
                        if isinstance(error, LongtailError)
                        else f"{type(error).__name__}: {error}"
                    )
                job.working = ""

        threading.Thread(target=work, daemon=True).start()


def examples(run: Run) -> list[dict]:
    """The least and the most viewed subject's question of the run, each with its `question`, `s_uri` and `s_pop`."""
    files = [run.questions(name) for name in ("popqa", "entityquestions") if name in run.sets]
    query = """SELECT question, s_uri, s_pop FROM questions WHERE s_pop IS NOT NULL
        ORDER BY s_pop {}, question_id LIMIT 1"""
    found = [
        database.ask(query.format(order), questions=file)
        for file in files[:1]
        for order in ("", "DESC")
    ]
    return [row for rows in found for row in rows.to_arrow_table().to_pylist()]


def ways(run: Run) -> dict[str, list[str]]:
    """Language model -> how it can answer below the threshold."""
    chosen, known = run.params, {}
    own = methods.of_kinds(chosen.ways, "bm25", "dense", "lsr", "hybrid", "reranked", "genread")
    for lm in chosen.lms:
        pairs = [
            name
            for dataset in chosen.parts.answered
            for name in run.rules(dataset, lm)
            if BELOW in name
        ]
        if names := [*own, *dict.fromkeys(pairs)]:
            known[lm] = names
    return known
