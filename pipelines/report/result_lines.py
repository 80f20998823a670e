"""What `longtail run` ends with: the main figures of the run, as lines for a terminal."""

from collections.abc import Collection, Iterator
from pathlib import Path

from pipelines.pages.section import Row
from pipelines.pages.table_rows import cell
from pipelines.pages.values import label, percent, show
from pipelines.report.findings import after_holm
from pipelines.report.result_section import POLICIES, main_bits, main_shares
from pipelines.report.run_tables import Settings, Tables
from pipelines.storage.atomic import read_json

DATA = Path("data")


def result_lines(outs: Collection[Path], settings: Settings) -> list[str]:
    """The results of a run that made the files and folders `outs`.

    These are accuracies where questions are answered, else bits per byte, else how many rows were
    made.
    """
    if _is_made(DATA / "analyses", outs):
        tables = Tables(DATA, settings)
        shares = main_shares(tables)
        if shares:
            method = ""
            if "adaptive" in shares[0]:
                method = f" with passages by {label(shares[-1]['method'])}"
            head = f"{label(shares[0]['of'])}, answered by {shares[0]['lm']}{method}: % right"
            lines = list(_lines(head, shares, "accuracy"))
            lines += [f"  {row['why']}" for row in tables.rows("left_out")]
            if "verdict" in shares[0]:
                remark = after_holm(tables, shares[-1])
                lines.append(f"  advice: {shares[-1]['verdict']}{remark}")
            return lines

        bits = main_bits(tables)
        if bits:
            head = (
                f"{label(bits[0]['corpus'])}, read by {bits[0]['lm']}: bits per byte with "
                "documents by"
            )

            return list(_lines(head, bits, "bits_per_byte"))

    return list(_counts(outs, settings))


def _lines(head: str, rows: list[Row], column: str) -> Iterator[str]:
    yield f"{head}, with 95 % intervals"
    width = max(len(row["policy"]) for row in rows)
    for row in rows:
        line = f"  {row['policy']:{width}}  {show(cell(row[column], column))}"
        if row["policy"] == POLICIES["adaptive"]:
            line += f"; {percent(row['retrieved'].value)} of the questions retrieve"
        yield line


def _counts(outs: Collection[Path], settings: Settings) -> Iterator[str]:
    """How many questions, triples and passages the run made."""
    metrics = DATA / "metrics"
    counts = []
    for name in settings.parts.question_sets:
        counts.append((metrics / f"{name}.json", "questions", f"questions of {label(name)}"))
    counts.append((metrics / "triples.json", "triples", "triples"))
    for name in settings.parts.corpora:
        counts.append((metrics / f"corpus_{name}.json", "documents", f"passages of {label(name)}"))

    for path, key, words in counts:
        if _is_made(path, outs):
            number = read_json(path).get(key)
            if number is not None:
                yield f"{number:,.0f} {words}"


def _is_made(path: Path, outs: Collection[Path]) -> bool:
    """Whether a file or folder is there, and is one of `outs` or in one of them."""
    return path.exists() and not {path, *path.parents}.isdisjoint(outs)
