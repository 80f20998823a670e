"""The explorer's pages as HTML.

What stands on them is escaped and neutral, whatever it is made of.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from pipelines.errors import LongtailError
from pipelines.evaluation import tables
from pipelines.explorer import one_question, scored_texts, slices
from pipelines.explorer.addresses import number_of_pages
from pipelines.explorer.one_question import Question
from pipelines.explorer.reasons import PASSAGES, READ, REASONS
from pipelines.explorer.run import RUN_MAKES_IT, Run
from pipelines.explorer.scored_texts import Texts
from pipelines.explorer.slices import UNKNOWN, Slice
from pipelines.intervals import Interval, fixed
from pipelines.language import words
from pipelines.methods import Method
from pipelines.pages import drawing, rendering, values
from pipelines.storage import database

Place = tuple[str, str, str]  # title, address ("": not there), what is there

TEMPLATES = Path(__file__).parent / "templates"
FULL_SHADE = 3.0  # bits that shade a token fully
SHADES = 5
TEXT_LENGTH = 20_000  # characters of a prompt or a text that a page shows
QUESTION_ORDERS = {
    "popular": "most viewed first",
    "rare": "least viewed first",
    "id": "by id",
}
TEXT_ORDERS = {"gain": "most bits saved first", "loss": "fewest bits saved first", "id": "by id"}
ACCURACIES = """SELECT * FROM accuracy WHERE dataset = $name AND lm = $lm
    ORDER BY substring DESC, method"""


def css() -> str:
    """The style sheet of the report, what the explorer adds, and the colours of methods."""
    sheets = [rendering.inline("report.css"), (TEMPLATES / "explorer.css").read_text("utf-8")]
    for kind, style in drawing.METHOD_STYLES.items():
        sheets.append(f".of-{kind} {{ --method: {style.colour}; }}\n")
    return "".join(sheets)


@cache
def _templates() -> jinja2.Environment:
    environment = rendering.environment()
    environment.loader = jinja2.FileSystemLoader(TEMPLATES)
    environment.filters |= FILTERS
    return environment


def render(template: str, **facts: Any) -> str:
    """A page by the name of its template."""
    return _templates().get_template(f"{template}.html.j2").render(facts)


# The filters of the templates


def counted(n: float, word: str) -> str:
    """A number with its noun, such as "1 view" and "2,000 views"."""
    plural = "" if n == 1 else "s"
    return f"{n:,.0f} {word}{plural}"


def views(n: float | None) -> str:
    if n is None:
        return "popularity unknown"
    return f"{counted(n, 'view')} a month"


def range_of(popularity: str) -> str:
    """The words for a range LEAST-MOST of popularity, of which either end may be left out."""
    if popularity == UNKNOWN:
        return "unknown"
    least, _, most = popularity.partition("-")
    if least and most:
        return f"{int(least):,} to {int(most):,}"
    if most:
        return f"up to {int(most):,}"
    return f"{int(least or 0):,} or more"


def in_percent(share: Interval, digits: int = 0) -> tuple[str, str]:
    """A share and its interval in per cent, such as "22 %" and "[18, 27]"; "" if unknown."""
    if math.isnan(share.value):
        return "", ""
    low = fixed(100 * share.low, digits)
    high = fixed(100 * share.high, digits)
    return (
        f"{fixed(100 * share.value, digits)}\N{NO-BREAK SPACE}%",
        f"[{low},\N{NO-BREAK SPACE}{high}]",
    )


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def probability(nats: float | None) -> str:
    """The probability of a log-probability, in per cent; "" if it is not known."""
    if nats is None or math.isnan(nats):
        return ""
    return f"{100 * math.exp(nats):.0f} %"


def shade(bits: float) -> str:
    """The class of the style sheet that shades a token by the bits saved or lost on it."""
    level = math.ceil(SHADES * abs(bits) / FULL_SHADE)
    return f"l{min(SHADES, level)}"


def subject_id(row: Mapping[str, Any]) -> str:
    """The Wikidata id of a question's subject, or "" if it has none."""
    address = row.get("s_uri") or ""
    return address.rpartition("/")[2]


def shortened(text: str) -> str:
    return words.beginning(text, TEXT_LENGTH)


def sentence(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def marked(text: str, answers: Sequence[str]) -> list[str]:
    """The text in parts; every second part is an answer as `matching.word` finds it.

    Of answers that begin at the same place the longest one is marked.
    """
    names = [unicodedata.normalize("NFC", answer).strip() for answer in answers]
    return words.split(unicodedata.normalize("NFC", text), names)


def method_kind(method: str) -> str:
    """The kind of a method, whose colour the style sheet has; "" if it has no colour."""
    kind = Method.of_name(method).kind
    return kind if kind in drawing.METHOD_STYLES else ""


def holder(question: Question, answer: Mapping[str, Any]) -> str:
    """Which passage of an answer holds a right one: "best", "other" or "none"; "" if not known.

    An ensemble reads other passages than its best one.
    """
    if answer["doc_has_answer"] is None:
        return ""
    if not answer["doc_has_answer"]:
        return "none"
    document = question.documents.get(answer["doc_id"])
    if document and len(marked(document["text"], question.row["possible_answers"])) == 1:
        return "other"
    return "best"


FILTERS: dict[str, Callable] = {
    "label": values.label,
    "relation": values.named,
    "views": views,
    "range": range_of,
    "counted": counted,
    "marked": marked,
    "subject": subject_id,
    "long": shortened,
    "beginning": words.beginning,
    "sentence": sentence,
    "holder": holder,
    "kind": method_kind,
    "read": READ.get,
    "in_percent": in_percent,
    "signed": signed,
    "probability": probability,
    "level": shade,
}


# The pages


def home(run: Run, places: Sequence[Place]) -> str:
    """The run's main numbers, and what there is to look at; `places` are further addresses."""
    answered = []
    for name in run.sets:
        lms = ", ".join(run.answers(name))
        answered.append(f"{values.label(name)} by {lms}")
    scored = [values.label(name) for name in scored_texts.corpora(run)]
    has_report = (run.data / "report/index.html").is_file()

    unanswered = "this run answers no questions"
    if run.params.parts.answered:
        unanswered = f"no answers yet; {RUN_MAKES_IT}"
    about_questions = "; ".join(answered) or unanswered
    about_texts = ", ".join(scored) or "no scored texts in this run"
    about_report = "every table and figure" if has_report else f"not yet; {RUN_MAKES_IT}"
    own_places = [
        ("Questions", "/questions" if answered else "", about_questions),
        ("Scored texts", "/texts" if scored else "", about_texts),
        ("The report", "/report/" if has_report else "", about_report),
    ]
    all_places = [*own_places, *places]
    return render("home", places=all_places, accuracies=accuracies(run), reasons=REASONS)


def accuracies(run: Run) -> list[dict[str, Any]]:
    """For each question set and language model the rows of closed_book and of its best method.

    Each has the number of `questions`, and the `slice` that compares both with its `counts`.
    """
    file = run.data / "analyses/accuracy.parquet"
    if not file.is_file():
        return []
    rows = []
    for dataset in run.sets:
        for lm, files in run.answers(dataset).items():
            methods = _method_rows(file, dataset, lm, files)
            if not methods:
                continue
            closed_book = next((row for row in methods if row["method"] == "closed_book"), None)
            best = next((row for row in methods if row is not closed_book), None)
            compared_method = (best or methods[0])["method"]
            slice_ = Slice.parse(run, {"set": dataset, "lm": lm, "method": compared_method})
            counts = slices.count_questions(run, slice_)
            compared = {"closed_book": closed_book, "best": best, "slice": slice_, "counts": counts}
            rows.append(methods[0] | compared)
    return rows


def _method_rows(file: Path, dataset: str, lm: str, files: Mapping[str, Path]) -> list[dict]:
    """The accuracies of the methods that have `files` of answers, best first."""
    rows = database.ask(ACCURACIES, {"name": dataset, "lm": lm}, accuracy=file)
    methods = tables.with_intervals(rows.to_arrow_table().to_pylist())
    return [row for row in methods if row["method"] in files]


def questions(run: Run, parameters: Mapping[str, str]) -> str:
    """The list of a slice's questions, with the counts of who is right and by popularity."""
    slice_ = Slice.parse(run, parameters)
    listed = slices.list_questions(run, slice_)
    words_of_slice = _slice_words(slice_)
    relation_names = {"": "all"}
    for relation in slices.relations(run, slice_.set):
        relation_names[relation] = values.named(relation)
    relations = sorted(relation_names, key=lambda relation: relation_names[relation].lower())
    relations.remove("")

    bands = list(listed.bands)
    if slice_.popularity and slice_.popularity not in bands:
        bands.append(slice_.popularity)
    band_names = {"": "all"} | {band: range_of(band) for band in bands}
    counted_of_wrong = {
        "wrong": "wrong answers",
        "holds": "the passage holds the answer",
        "lacks": "it does not",
        "base": f"right {words_of_slice['phrases']['base']}",
    }
    return render(
        "questions",
        here="questions",
        listed=listed,
        sets=run.sets,
        answers=run.answers(slice_.set),
        counted_of_wrong=counted_of_wrong,
        relations=relations,
        relation_names=relation_names,
        bands=bands,
        band_names=band_names,
        orders=QUESTION_ORDERS,
        **words_of_slice,
    )


def _choices(slice_: Slice, cells: Mapping[str, str]) -> dict[str, str]:
    """What a slice is restricted to: field -> words."""
    choices = {}
    if slice_.relation:
        choices["relation"] = values.named(slice_.relation)
    if slice_.popularity:
        choices["popularity"] = f"{range_of(slice_.popularity)} views"
    if slice_.cell:
        choices["cell"] = cells[slice_.cell]
    if slice_.read:
        choices["read"] = f"read {READ[slice_.read]}"
    if slice_.passage:
        choices["passage"] = PASSAGES[slice_.passage]
    if slice_.words:
        choices["words"] = f"“{slice_.words}”"
    return choices


def _slice_words(slice_: Slice) -> dict[str, Any]:
    """The slice as `chosen`, and its words.

    They are the names of its two `ways` of answering, with their language models if these differ;
    the `phrases` for answers by them, such as "with BM25"; those of its `cells` and `choices`.
    """
    (base_lm, base), (method_lm, method) = slice_.compared
    ways = {"base": values.label(base), "method": values.label(method)}
    phrases = {"base": phrase(base), "method": phrase(method)}
    if base_lm != method_lm:
        for names in (ways, phrases):
            names["base"] += f" by {base_lm}"
            names["method"] += f" by {method_lm}"

    cells = {
        "both": "right both ways",
        "base": f"right only {phrases['base']}",
        "method": f"right only {phrases['method']}",
        "neither": "wrong both ways",
        "wrong": f"wrong {phrases['method']}",
    }
    choices = _choices(slice_, cells)
    return {
        "chosen": slice_,
        "ways": ways,
        "phrases": phrases,
        "cells": cells,
        "choices": choices,
    }


def phrase(method: str) -> str:
    """How a question is answered, such as "with BM25" and "without retrieval"."""
    name = values.label(method)
    return name if method == "closed_book" else f"with {name}"


def question(run: Run, parameters: Mapping[str, str]) -> str:
    """A question with all answers; with `prompt` (model/method) also the prompts of one of them."""
    slice_ = Slice.parse(run, parameters)
    question_id = parameters.get("id", "")
    read = one_question.read_question(run, slice_.set, question_id)
    place = slices.find_place(run, slice_, question_id)
    slice_ = replace(slice_, page=place.page if place else 1)

    lm, _, method = parameters.get("prompt", "").partition("/")
    sent = None
    unsent = ""
    if lm:
        read.answer_by(lm, method)
        try:
            sent = one_question.rebuild_prompts(run, slice_.set, lm, method, read)
        except LongtailError as error:
            unsent = str(error)
    return render(
        "question",
        here="questions",
        question=read,
        place=place,
        own=run.params.lms,
        gold=read.row["possible_answers"],
        sent=sent,
        unsent=unsent,
        sent_to=(lm, method),
        **_slice_words(slice_),
    )


def texts(run: Run, parameters: Mapping[str, str]) -> str:
    """The list of scored texts, with what documents save on each."""
    choice = Texts.parse(run, parameters)
    rows, total = scored_texts.list_texts(run, choice)
    corpora = scored_texts.corpora(run)
    settings = scored_texts.settings_of(run, choice.corpus)
    return render(
        "texts",
        here="texts",
        chosen=choice,
        orders=TEXT_ORDERS,
        rows=rows,
        total=total,
        pages=number_of_pages(total),
        corpora=corpora,
        settings=settings,
    )


def text(run: Run, parameters: Mapping[str, str]) -> str:
    """A scored text with its tokens and documents."""
    choice = Texts.parse(run, parameters)
    read = scored_texts.read_scored_text(run, choice, parameters.get("id", ""))
    return render("text", here="texts", chosen=choice, text=read)
