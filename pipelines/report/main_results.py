"""A run's main results as lines for a terminal, from the tables that the report shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace

from pipelines import methods
from pipelines.evaluation import tables
from pipelines.intervals import Interval, interval
from pipelines.report import landed
from pipelines.report.page import Percent, label, show

POLICIES = {"never": "never retrieve", "always": "always retrieve", "adaptive": "adaptive"}


def result_lines(outs: Collection[Path], params: SimpleNamespace) -> list[str]:
    """The results of a run that made the files and folders `outs`.

    These are accuracies where questions are answered, else bits per byte, else how many rows were made. `params` needs
    lms, parts, thresholds and replug.
    """
    kinds = (_of_policies, _of_methods, _of_texts, _of_rows)
    return next(filter(None, ([*kind({*outs}, params)] for kind in kinds)), [])


def _of_policies(outs: set[Path], params: SimpleNamespace) -> Iterator[str]:
    """The accuracy of never, always and adaptively retrieving, with the method whose adaptive accuracy is best."""
    by_set = landed.read_json(landed.ADAPTIVE) if landed.is_held(landed.ADAPTIVE, outs) else {}
    by_lm = next((by_set[dataset] for dataset in params.parts.answered[:1] if by_set.get(dataset)), {})
    lm = next((name for name in [*params.lms, *by_lm] if name in by_lm), "")
    search, of_lm = params.thresholds.search, by_lm.get(lm, {})
    named = methods.ordered(name for name, found in of_lm.items() if isinstance(found, dict) and search in found)
    if not named:
        return
    best = max(named, key=lambda name: of_lm[name][search]["adaptive"]["value"])
    found = {name: interval(of_lm[best][search][name]) for name in (*POLICIES, "retrieved")}
    questions = f"{of_lm['questions']:,} questions of {label(params.parts.answered[0])}"
    how = f"with passages by {label(best)}" + f", the best of {len(named)} methods" * (len(named) > 1)
    yield f"{questions}, answered by {lm} {how}; right answers with 95 % intervals:"
    for name, words in POLICIES.items():
        retrieves = f", and {100 * found['retrieved'].value:.0f} % of the questions retrieve" * (name == "adaptive")
        yield f"  {words:15}  {_share(found[name])}{retrieves}"


def _of_methods(outs: set[Path], params: SimpleNamespace) -> Iterator[str]:
    """The accuracy of the main language model closed-book, and of its best other method."""
    rows = _rows("accuracy", outs)
    rows = [row for row in rows if row["dataset"] in params.parts.answered[:1]]
    lm = next((name for name in [*params.lms, *(row["lm"] for row in rows)] if any(r["lm"] == name for r in rows)), "")
    by_method = {row["method"]: row["substring"] for row in rows if row["lm"] == lm}
    shown = [name for name in by_method if name == "closed_book"]
    if others := [name for name in by_method if name != "closed_book"]:
        shown.append(max(others, key=lambda name: by_method[name].value))
    if not shown:
        return
    yield f"{label(params.parts.answered[0])}, answered by {lm}; right answers with 95 % intervals:"
    width = max(map(len, map(label, shown)))
    for name in shown:
        best = f", the best of {len(others)} methods" * (name != "closed_book" and len(others) > 1)
        yield f"  {label(name):{width}}  {_share(by_method[name])}{best}"


def _of_texts(outs: set[Path], params: SimpleNamespace) -> Iterator[str]:
    """Bits per byte of the main corpus alone, and in REPLUG with the best retriever's documents."""
    rows = [row for row in _rows("bits_per_byte", outs) if row["corpus"] in params.parts.scored[:1]]
    rows = [row for row in rows if row["lm"] in params.lms[:1]]
    alone = [row for row in rows if row["k"] == 0]
    with_documents = [row for row in rows if row["k"] == params.replug.top_k and row["retriever"] != "random"]
    if not alone or not with_documents:
        return
    best = min(with_documents, key=lambda row: row["bits_per_byte"].value)
    how = f"{params.replug.top_k} documents by {label(best['retriever'])}"
    how += f", the best of {len(with_documents)} retrievers" * (len(with_documents) > 1)
    yield f"{label(best['corpus'])}, read by {best['lm']}; bits per byte with 95 % intervals:"
    yield f"  without documents  {show(alone[0]['bits_per_byte'])}"
    yield f"  REPLUG             {show(best['bits_per_byte'])}, with {how}"
    yield f"  saved              {show(best['saved'], digits=1)} %"


def _of_rows(outs: set[Path], params: SimpleNamespace) -> Iterator[str]:
    """How many questions, triples and passages there are."""
    for name, figure in landed.figures(outs, params).items():
        kind, _, of = name.partition("/")
        if kind in ("questions", "triples", "passages"):
            yield f"{figure.value:,.0f} {kind}{f' of {label(of)}' * bool(of)}"


def _rows(name: str, outs: set[Path]) -> list[dict]:
    """The rows of a table of `analyse`; none where the run does not make it."""
    return tables.read_analyses(landed.ANALYSES, name) if landed.is_held(landed.ANALYSES, outs) else []


def _share(figure: Interval) -> str:
    value, _, ends = show(Percent(figure)).partition(" ")
    return f"{value} % {ends}"
