"""What `longtail ask` prints of a question: relation, decision, passage and answer."""

from collections.abc import Iterator

from pipelines.adaptive.ask import AskedQuestion
from pipelines.adaptive.subjects import Reading


def answer_lines(asked: AskedQuestion) -> Iterator[str]:
    """What was asked, found and decided, in a line each. The answer comes last."""
    reading = asked.reading
    if reading:
        yield from _reading_lines(reading, asked.question)
    is_known = reading and reading.subject and reading.subject.popularity is not None
    yield f"{'popularity' if is_known else 'note'}: {asked.decision.why}"
    yield f"rule: {asked.pair} of {asked.lm}; {asked.method} answers"
    passage = asked.passage
    if passage:
        source = asked.lm
        if passage.id:
            similarity = f"{passage.measure} {passage.similarity:.3f}"
            source = f"{passage.title} ({passage.id}, {similarity})"
        yield f"passage: {source}: {' '.join(passage.body.split())}"
    yield f"answer: {asked.answer}"


def _reading_lines(reading: Reading, question: str) -> Iterator[str]:
    """The relation, the wording, and the subject with its namesakes."""
    template = reading.template
    relation = template.relation
    if template.name != relation:
        relation = f"{template.name} ({relation})"
    yield f"relation: {relation}, by the template {template.wording!r} of {template.dataset}"
    yield f"asked: {question}"

    subject = reading.subject
    if not subject:
        return
    line = f"subject: {subject.label} ({subject.qid})"
    n_others = len(reading.candidates) - 1
    if not n_others:
        yield line
        return
    yield f"{line}; {n_others} more of that name (--subject QID)"
    for candidate in reading.candidates:
        views = "unknown" if candidate.popularity is None else f"{candidate.popularity:,}"
        title = f"{candidate.label} [{candidate.title or 'no article'}]"
        states = f"{template.name} known" if candidate.states else f"no {template.name} known"
        yield f"  {candidate.qid:>10} {views:>12} views  {title}, {states}"
