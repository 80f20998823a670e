"""The explorer's pages as HTML. What stands on them is escaped and neutral, whatever it is made of."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from pipelines.errors import LongtailError
from pipelines.evaluation.tables import ENDS
from pipelines.explorer import lm_queries
from pipelines.explorer import questions as run_questions
from pipelines.explorer.lm_queries import Texts
from pipelines.explorer.questions import UNKNOWN, Question, Slice
from pipelines.explorer.run import PAGE, RUN, Run
from pipelines.intervals import Interval, fixed
from pipelines.language import words
from pipelines.pages import rendering, values
from pipelines.storage import database

Place = tuple[str, str, str]  # title, address ("": not there), what is there

TEMPLATES = Path(__file__).parent / "templates"
FULL = 3.0  # bits that shade a token fully
LONG = 20_000  # characters of a prompt or a text that a page shows
JUDGED = {"published": "published rule", "words": "whole words"}
ORDERED = {"popular": "most viewed first", "rare": "least viewed first", "id": "by id"}
GAINED = {"gain": "most bits saved first", "loss": "fewest bits saved first", "id": "by id"}
ACCURACIES = (
    "SELECT * FROM accuracy WHERE dataset = $name AND lm = $lm ORDER BY substring DESC, method"
)


def css() -> str:
    return rendering.inline("report.css") + (TEMPLATES / "explorer.css").read_text(encoding="utf-8")


@cache
def _templates() -> jinja2.Environment:
    made = rendering.environment()
    made.loader = jinja2.FileSystemLoader(TEMPLATES)
    made.filters |= {
        "label": values.label,
        "relation": values.named,
        "views": lambda n: "popularity unknown" if n is None else f"{counted(n, 'view')} a month",
        "range": range_of,
        "counted": counted,
        "marked": marked,
        "wrong": wrong_answers,
        "subject": lambda row: (row.get("s_uri") or "").rpartition("/")[2],
        "long": lambda text: words.beginning(text, LONG),
        "beginning": words.beginning,
        "prompts": lambda sent: [f"{prompt.document}{prompt.context}" for prompt in sent.prompts],
        "share": lambda value: f"{100 * value:.0f} %",
        "in_percent": in_percent,
        "weight": lambda value: f"{100 * value:.1f} %",
        "signed": lambda value: f"{value:+.2f}".replace("-", "\N{MINUS SIGN}"),
        "probability": lambda nats: (
            "" if nats is None or math.isnan(nats) else f"{100 * math.exp(nats):.0f} %"
        ),
        "level": lambda bits: f"l{min(5, math.ceil(5 * abs(bits) / FULL))}",
    }
    made.globals["judgements"] = JUDGED
    return made


def render(template: str, **values: Any) -> str:
    """A page by the name of its template."""
    return _templates().get_template(f"{template}.html.j2").render({"css": "", "here": ""} | values)


def counted(n: float, word: str) -> str:
    return f"{n:,.0f} {word}{'' if n == 1 else 's'}"


def range_of(popularity: str) -> str:
    if popularity == UNKNOWN:
        return "unknown"
    least, _, most = popularity.partition("-")
    ends = [f"{int(end):,}" if end else "" for end in (least, most)]
    return (
        f"{ends[0]} to {ends[1]}"
        if all(ends)
        else f"up to {ends[1]}"
        if ends[1]
        else f"{ends[0] or 0} or more"
    )


def in_percent(share: Interval, digits: int = 0) -> tuple[str, str]:
    """A share and its interval, as "22 %" and "[18, 27]", which no line breaks; nothing of an unknown one."""
    if math.isnan(share.value):
        return "", ""
    value, low, high = (
        fixed(100 * number, digits) for number in (share.value, share.low, share.high)
    )
    return f"{value}\N{NO-BREAK SPACE}%", f"[{low},\N{NO-BREAK SPACE}{high}]"


def marked(text: str, answers: Sequence[str]) -> list[str]:
    """The text in parts; every second one is an answer as `matching.word` finds it. The longest answer wins."""
    text, *names = (unicodedata.normalize("NFC", said) for said in (text, *answers))
    return words.split(text, [name.strip() for name in names])


def wrong_answers(question: Question) -> dict[str, bool]:
    """Each answer to a question that is wrong by the published rule -> whether a passage has it, as `marked`."""
    texts = [document["text"] for document, _ in question.read] + [
        text for *_, text in question.written
    ]
    wrong = [
        answer["prediction"] or "" for *_, answer in question.listed if answer["correct"] is False
    ]
    said = [unicodedata.normalize("NFC", one).strip() for one in wrong]
    gold = {name.lower() for name in question.row["possible_answers"]}
    names = [name for name in dict.fromkeys(said) if name and name.lower() not in gold]
    return {name: any(len(marked(text, [name])) > 1 for text in texts) for name in names}


def questions(run: Run, asked: Mapping[str, str]) -> str:
    """The list of a slice's questions, with the counts of the 2x2 and of the bands of popularity."""
    return render("questions", here="questions", **of_slice(run, Slice.of(run, asked)))


def of_slice(run: Run, chosen: Slice) -> dict[str, Any]:
    """What the list of a slice shows."""
    listed, answers, ways = (
        run_questions.list_questions(run, chosen),
        run.answers(chosen.set),
        ways_of(chosen),
    )
    only = [f"right only by {way}" for way in ways.values()]
    relations = run_questions.relations(run, chosen.set)
    return {
        "chosen": chosen,
        "listed": listed,
        "cells": dict(
            zip(run_questions.CELLS, ("right by both", *only, "wrong by both"), strict=True)
        ),
        "sets": run.sets,
        "answers": {lm: list(by_method) for lm, by_method in answers.items()},
        "ways": ways,
        "misread": f"a passage holds the answer, and {ways['method']} is wrong",
        "relations": sorted(relations, key=lambda relation: values.named(relation).lower()),
        "relation_names": {"": "all"}
        | {relation: values.named(relation) for relation in relations},
        "bands": (
            bands := list(
                dict.fromkeys([*listed.bands, *([chosen.popularity] if chosen.popularity else [])])
            )
        ),
        "band_names": {"": "all"} | {band: range_of(band) for band in bands},
        "orders": ORDERED,
    }


def ways_of(chosen: Slice) -> dict[str, str]:
    """What both ways of answering are called; with their models if these differ."""
    one_model = len({lm for lm, _ in chosen.compared}) == 1
    called = (
        values.label(method) if one_model else f"{values.label(method)} of {lm}"
        for lm, method in chosen.compared
    )
    return dict(zip(("base", "method"), called, strict=True))


def export(run: Run, chosen: Slice, most: int) -> str:
    """A slice's first `most` questions with their details, as a page that needs no server; its bytes repeat."""
    read = run_questions.read_answers_to(run, chosen.set, run_questions.ids(run, chosen, most))
    return render("export", css=css(), read=read, own=run.params.lms, **of_slice(run, chosen))


def home(run: Run, places: Sequence[Place]) -> str:
    """The run's main numbers, and what there is to look at: questions, texts, the report, and `places`."""
    answered = [f"{values.label(name)} by {', '.join(run.answers(name))}" for name in run.sets]
    scored = [values.label(name) for name in lm_queries.corpora(run)]
    report = (run.data / "report/index.html").is_file()
    unanswered = (
        f"no answers yet; {RUN}" if run.params.parts.answered else "this run answers no questions"
    )
    here = [
        ("Questions", "/questions" if answered else "", "; ".join(answered) or unanswered),
        (
            "Scored texts",
            "/texts" if scored else "",
            ", ".join(scored) or "no scored texts in this run",
        ),
        (
            "The report",
            "/report/" if report else "",
            "every table and figure" if report else f"not yet; {RUN}",
        ),
    ]
    return render("home", places=[*here, *places], accuracies=accuracies(run))


def question(run: Run, asked: Mapping[str, str]) -> str:
    """A question with all answers; with `prompt` (model/method) also the prompts of one of them."""
    chosen, id_ = Slice.of(run, asked), asked.get("id", "")
    (read,) = run_questions.read_answers_to(run, chosen.set, [id_])
    lm, _, method = asked.get("prompt", "").partition("/")
    sent, unsent = None, ""
    try:
        sent = run_questions.sent(run, chosen.set, lm, method, read) if lm else None
    except LongtailError as error:
        unsent = str(error)
    more = {"sent": sent, "unsent": unsent, "sent_to": (lm, method)}
    shown = {
        "question": read,
        "own": run.params.lms,
        "gold": read.row["possible_answers"],
        "ways": ways_of(chosen),
    }
    return render("question", here="questions", chosen=chosen, **more, **shown)


def texts(run: Run, asked: Mapping[str, str]) -> str:
    """The list of scored texts, with what documents save on each."""
    chosen = Texts.of(run, asked)
    rows, total = lm_queries.list_texts(run, chosen)
    shown = {"rows": rows, "total": total, "pages": max(1, math.ceil(total / PAGE))}
    shown |= {
        "corpora": lm_queries.corpora(run),
        "settings": lm_queries.settings_of(run, chosen.corpus),
    }
    return render("texts", here="texts", chosen=chosen, orders=GAINED, **shown)


def text(run: Run, asked: Mapping[str, str]) -> str:
    """A scored text with its tokens and documents."""
    chosen = Texts.of(run, asked)
    read = lm_queries.read_scored_text(run, chosen, asked.get("id", ""))
    return render("text", here="texts", chosen=chosen, text=read)


def accuracies(run: Run) -> list[dict[str, Any]]:
    """For each question set and language model its `questions`, their address, the rows of closed_book and best."""
    rows, file = [], run.data / "analyses/accuracy.parquet"
    for name in run.sets if file.is_file() else ():
        for lm, by_method in run.answers(name).items():
            found = (
                database.ask(ACCURACIES, {"name": name, "lm": lm}, accuracy=file)
                .to_arrow_table()
                .to_pylist()
            )
            shares = (Interval(*(row[f"substring{end}"] for end in ENDS)) for row in found)
            own = [
                row | {"share": of}
                for row, of in zip(found, shares, strict=True)
                if row["method"] in by_method
            ]
            closed_book = next((row for row in own if row["method"] == "closed_book"), None)
            best = next((row for row in own if row is not closed_book), None)
            for row in own[:1]:
                at = Slice.of(run, {"set": name, "lm": lm, "method": (best or row)["method"]}).to()
                rows.append(row | {"closed_book": closed_book, "best": best, "at": at})
    return rows
