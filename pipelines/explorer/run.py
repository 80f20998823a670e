"""The run that is looked at: its params, answers, rules and rows by key, and what a page's address asks of it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import duckdb

from pipelines.adaptive import rule
from pipelines.answering import answer_files
from pipelines.answering.passages import Opened
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage import database, parquet

SECTIONS = (
    "seed",
    "lm",
    "lms",
    "compute",
    "retriever",
    "retrievers",
    "reranker",
    "replug",
    "answer",
    "parts",
    "ways",
)
SECTIONS += ("language",)
RUN = "`longtail run` makes it"
PAGE = 50  # rows of a list
OPENED = Opened()  # a run, what answers there are (every imported file is read), and an index
WHOSE = """CASE WHEN {of}doc_is_subject THEN 'subject''s page' WHEN {of}doc_is_namesake THEN 'a namesake''s page'
    WHEN NOT ({of}doc_is_subject OR {of}doc_is_namesake) THEN 'another page' END"""  # null: not known
WORDS = 200  # characters of a text in an address, which every link of a page repeats


@dataclass(frozen=True, eq=False)
class Run:
    """A run's outputs, below `data`, and its params."""

    data: Path
    params: SimpleNamespace

    @property
    def sets(self) -> list[str]:
        """The question sets that something has answered."""
        return [name for name in self.params.parts.answered if self.answers(name)]

    def questions(self, dataset: str) -> Path:
        return self.data / "questions" / dataset / f"{dataset}.parquet"

    def answers(self, dataset: str) -> dict[str, dict[str, Path]]:
        """Language model -> method -> its file of answers; this run's models first, then the imported ones."""
        chosen, folders = (
            self.params,
            [self.data / of / dataset for of in ("predictions", "imported", "questions")],
        )
        of_run = chosen.lms, chosen.retrievers, self.data
        return OPENED.get(dataset, lambda: answer_files.sets(dataset, *of_run), folders, of_run)

    def rules(self, dataset: str, lm: str) -> dict[str, rule.Rule]:
        """Method, or name of two answers -> its rule for when to retrieve."""
        file = self.data / "adaptive/popularity/thresholds.json"
        if not file.is_file():
            return {}
        tuned = json.loads(file.read_text(encoding="utf-8"))["rules"].get(dataset, {}).get(lm, {})
        return {name: rule.parse(entry, str(file)) for name, entry in tuned.items()}


def open_run(data: Path = Path("data"), params: Path = Path("params.yaml")) -> Run:
    """The run of params.yaml as it is now. Raises LongtailError if there is none, or a value is wrong."""
    return OPENED.get(
        "run", lambda: Run(data, params_file.load_params(*SECTIONS, path=params)), [params], data
    )


def lookup(file: Path, column: str, values: Sequence[str], *columns: str) -> list[dict]:
    """The rows of a Parquet file whose `column` has one of these values, with some columns or all.

    DuckDB reads only the row groups that may hold them, so a file of any size will do if its rows are ordered by that
    column. Raises LongtailError if the file is missing or damaged.
    """
    shown = (
        ", ".join(columns if "*" in columns else dict.fromkeys((column, *columns)))
        if columns
        else "*"
    )
    query = f"SELECT {shown} FROM rows WHERE {column} IN (SELECT unnest($values::VARCHAR[])) ORDER BY {column}"
    with parquet.naming(file, errors=(duckdb.Error,)):
        return database.ask(query, {"values": list(values)}, rows=file).to_arrow_table().to_pylist()


class Addressed:
    """A dataclass whose fields are the parameters of the pages at PATH; those that have their default are left out."""

    PATH = ""

    def to(self, path: str = "", *, id: str = "", prompt: str = "", **changes: str | int) -> str:
        """The address of a page about this choice with some changes: of its list, or of the row `id` in it."""
        if "page" in (defaults := {field.name: field.default for field in fields(self)}):
            changes = {"page": self.page if id else 1} | changes
        named = asdict(replace(self, **changes)) | {"id": id, "prompt": prompt}
        named = {
            name: value for name, value in named.items() if value and defaults.get(name) != value
        }
        return (path or self.PATH) + (f"?{urlencode(named, errors='replace')}" if named else "")


def one_of(asked: Mapping[str, str], field: str, allowed: Iterable[str], default: str = "") -> str:
    """The value of a field, if it is allowed, or the default; else LongtailError with what is."""
    value, known = asked.get(field) or default, list(allowed)
    if value not in known:
        names = ", ".join(name for name in known if name)
        raise LongtailError(
            f"{field}: there is no {value!r}, expected one of: {names or 'nothing'}"
        )
    return value


def page_of(asked: Mapping[str, str]) -> int:
    """The number of the page asked for, from 1. Raises LongtailError for anything else."""
    page = asked.get("page") or "1"
    if not re.fullmatch(r"[1-9]\d{0,8}", page):
        raise LongtailError(f"page: {page!r} is no page, expected a number from 1 on")
    return int(page)
