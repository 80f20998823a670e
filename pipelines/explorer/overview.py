"""A run in a few numbers: how many questions and texts there are, and how well the best method does on them."""

from pathlib import Path
from typing import Any

from pipelines.explorer import lm_queries
from pipelines.explorer.lm_queries import Texts
from pipelines.explorer.looked_at import Run
from pipelines.explorer.slices import Slice
from pipelines.intervals import Interval
from pipelines.storage import database

ACCURACIES = "SELECT * FROM accuracy WHERE dataset = $name AND lm = $lm ORDER BY substring DESC, method"
SAVED = """SELECT lm, retriever, k, saved, saved_low, saved_high FROM bits_per_byte
    WHERE corpus = $corpus AND retriever != 'none' AND k = $k ORDER BY saved DESC, retriever"""
SCORED = "SELECT lm, count(*) AS texts FROM bpb WHERE retriever = 'none' GROUP BY lm ORDER BY lm"


def accuracies(run: Run) -> list[dict[str, Any]]:
    """For each question set and language model the `questions`, `closed_book` and the `best` other method.

    Both are rows of the table of accuracies with their `share` and the address of the questions, or None.
    """
    rows = []
    for name in run.sets:
        for lm, by_method in run.answers(name).items():
            found = _rows(run.data / "analyses/accuracy.parquet", ACCURACIES, {"name": name, "lm": lm})
            best: dict[bool, dict] = {}
            for row in (row for row in found if row["method"] in by_method):
                share = Interval(row["substring"], row["substring_low"], row["substring_high"])
                at = Slice.of(run, {"set": name, "lm": lm, "method": row["method"]}).to()
                best.setdefault(row["method"] == "closed_book", row | {"share": share, "at": at})
            if len(best) == 2:  # both numbers lead to one beside the other
                best[True]["at"] = best[False]["at"]
            if best:
                questions = next(iter(best.values()))["questions"]
                shown = {"closed_book": best.get(True), "best": best.get(False)}
                rows.append({"set": name, "lm": lm, "questions": questions} | shown)
    return rows


def texts(run: Run) -> list[dict[str, Any]]:
    """For each corpus and language model the number of scored `texts`, and the `best` retriever's saving, or None."""
    rows = []
    for corpus in lm_queries.corpora(run):
        asked = {"corpus": corpus, "k": run.params.replug.top_k}
        saved = _rows(run.data / "analyses/bits_per_byte.parquet", SAVED, asked)
        for row in _rows(lm_queries.table(run, corpus), SCORED):
            best = next((one for one in saved if one["lm"] == row["lm"]), None)
            if best:
                share = Interval(best["saved"], best["saved_low"], best["saved_high"]).times(0.01)
                best |= {"share": share, "at": Texts(corpus, row["lm"], best["retriever"], best["k"]).to()}
            rows.append(row | {"corpus": corpus, "best": best})
    return rows


def _rows(file: Path, query: str, values: dict | None = None) -> list[dict[str, Any]]:
    """The rows of a query on a table that is called as its file; none where the run has not made it yet."""
    return database.ask(query, values, **{file.stem: file}).to_arrow_table().to_pylist() if file.is_file() else []
