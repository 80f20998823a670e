"""What a run's language decides: names, page views, terms, matching, templates and prompts, from
languages/*.yaml.

docs/relations.md says what the keys of a file mean.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Formatter
from typing import Literal

import msgspec

from pipelines.catalogue import Protocol
from pipelines.errors import LongtailError, one_line

FOLDER = Path(__file__).with_name("languages")
MUL = "mul"  # Wikidata's one name for all languages


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How BM25 cuts texts into terms."""

    stemmer: str | None  # one of PyStemmer's algorithms; None: words stay as they are
    stop_words: str  # with spaces between; they are no terms
    stop_words_by: str  # the author of the list; part of the analyser's name


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What does not count when an answer is compared."""

    articles: str = ""  # separated by spaces; an article that ends in ' is cut off its word
    same: dict[str, str] = {}  # text -> what it counts as, after case folding
    # Unicode's; NFKC also makes wide letters and digits plain ones
    form: Literal["NFC", "NFKC"] = "NFC"
    punctuation: Literal["ascii", "unicode"] = "unicode"


class MediaWiki(msgspec.Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """What a language's Wikipedia shows of its pages.

    corpus/wikitext.yaml says how forms are written.
    """

    hidden_links: str  # what links to files and categories begin with, with spaces between
    months: str  # of the year, as dates have them, with spaces between
    date: str  # form with the fields day, month and year
    thousands: str  # mark between groups of digits
    decimal: str  # mark before decimals
    grouped_from: int = 4  # digits; shorter numbers have no mark for thousands
    first_day: str = "1"  # of a month
    words: dict[str, str] = {}  # letter in a template -> word that stands for it
    # variants of the language, the first that a page has counts: -{zh-hans:…; zh-hant:…}-
    variants: str = ""
    shown: dict[str, list[str]] = {}  # form -> templates that are shown so
    shown_patterns: dict[str, list[str]] = {}  # form -> patterns of such templates' names


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words around questions and answers."""

    question: str  # a demonstration, with {question} and then {answer}
    passage: str  # how a language model is asked for a passage, with {question}
    # a retrieved passage before its question; what follows it stands between passages too
    retrieved: str = "{passage}\n\n"


class Language(msgspec.Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """A file of languages/."""

    name: str  # in English
    wiki: str  # its Wikipedia: wiki.wikipedia.org
    # Wikidata's codes, the first that has a label counts; after all of them `mul`
    labels: list[str]
    media: MediaWiki
    terms: Terms
    match: Match
    prompt: Prompt
    templates: dict[str, str]  # relation -> question with one {} for the subject's label

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of labels and aliases in Wikidata, in the order in which they count."""
        return (*self.labels, MUL)

    @property
    def site(self) -> str:
        """The Wikipedia's name in Wikidata's sitelinks and of its dumps, as "dewiki"."""
        return f"{self.wiki.replace('-', '_')}wiki"

    @property
    def project(self) -> str:
        """The Wikipedia's name in page views, as "de.wikipedia"."""
        return f"{self.wiki}.wikipedia"

    @property
    def nameless(self) -> str:
        """How items without a name in this language are counted, as "no_german"."""
        return f"no_{self.name.lower()}"

    def asked(self, question: str) -> str:
        """The question as a prompt ends with it, up to where the answer begins: "Q: … A:"."""
        before_answer, _, _ = self.prompt.question.partition("{answer}")
        return before_answer.rstrip().format(question=question)

    def answered(self, question: str, answer: str) -> str:
        """The question with its answer, as a demonstration shows it."""
        return self.prompt.question.format(question=question, answer=answer)

    def retrieved(self, passage: str | None) -> str:
        """A passage as it stands before its question; "" without one."""
        return self.prompt.retrieved.format(passage=passage) if passage else ""

    @property
    def between_passages(self) -> str:
        """What stands between several passages before one question."""
        return self.prompt.retrieved.partition("{passage}")[2]

    def of_set(self, protocol: Protocol) -> Language:
        """The language, with the words around questions and passages that a question set has."""
        if not protocol.question:
            return self
        words = msgspec.structs.replace(
            self.prompt, question=protocol.question, retrieved=protocol.passage
        )
        return msgspec.structs.replace(self, prompt=words)


def codes() -> list[str]:
    """The languages that have a file, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


@cache
def read_language(code: str) -> Language:
    """The language with this code.

    Raises LongtailError if it has no file, or naming what is wrong with its file.
    """
    file = FOLDER / f"{code}.yaml"
    if code not in codes():
        raise LongtailError(
            f"language: {code}: no such file as {file.name}, expected one of {', '.join(codes())}"
        )
    try:
        language = msgspec.yaml.decode(file.read_bytes(), type=Language)
        _check_template("question", language.prompt.question, ["question", "answer"])
        _check_template("passage", language.prompt.passage, ["question"])
        for pid, template in language.templates.items():
            if template.count("{}") != 1:
                raise ValueError(f"{pid}'s template {template!r} must have one {{}}")
    except (msgspec.DecodeError, ValueError) as error:
        raise LongtailError(f"languages/{file.name}: {one_line(error)}") from None
    return language


def _check_template(key: str, template: str, expected: list[str]) -> None:
    """Raise ValueError if a prompt's template does not have the `expected` fields, in their
    order.
    """
    fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    if fields != expected or template.endswith("{question}{answer}"):
        wanted = " and after it ".join(f"{{{name}}}" for name in expected)
        raise ValueError(f"prompt.{key} is {template!r}, expected a text with {wanted}")


ENGLISH = read_language("en")
