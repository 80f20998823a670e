"""The sample's figures in README.md and docs/, written from the finished run in data/; running this
file writes them, and with the word `examples` the files in examples/ before that.

A figure in a sentence stands behind its name: `<!--hybrid-->52.5 %`, or `<!--rare-->0.48 [0.40,
0.56] bits`. FIGURES says where the run has it. A block behind `<!--output-->` is part of what the
last command in the block above prints: from the block's first line to the line that begins as its
last one does. Lines `...` stand for what is left out. docs/accuracy-by-popularity.svg is the report's.
"""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from pipelines.intervals import Interval, digits_beside_zero  # noqa: E402 - it is found by the line above

NUMBER = r"([+-]?\d[\d,]*(?:\.\d+)?)"
# with or without interval
FIGURE = re.compile(rf"<!--([\w-]+)-->{NUMBER}(?:([^\d<\[]*\[){NUMBER}(,\s+){NUMBER}\])?")
SHELL = re.compile(
    r"^```sh\n(.*?)^```\n(?:\n<!--output-->\n```\n(?:\.\.\.\n)?(.*?)^  \.\.\.\n```\n)?", re.M | re.S
)
EXAMPLES = ROOT / "examples"
EXAMPLE_ROWS = """
SELECT row_number() OVER (ORDER BY question_id) AS id, subj, s_uri, prop, s_pop, question,
    to_json(possible_answers), without.prediction, bm25.prediction
FROM '{data}/questions/popqa/popqa.parquet'
JOIN '{data}/predictions/popqa/tiny/closed_book.parquet' AS without USING (question_id)
JOIN '{data}/predictions/popqa/tiny/bm25.parquet' AS bm25 USING (question_id)
ORDER BY id
"""
PICTURE = "docs/accuracy-by-popularity.svg"
DRAWN = "report/figures/accuracy-by-popularity-popqa.svg"
MARGIN = 16  # pixels around the picture, which pages show on grounds of other colours


def _accuracy(method: str) -> tuple:
    return (
        100,
        "analyses/accuracy.parquet",
        "substring",
        f"dataset = 'popqa' AND method = '{method}'",
    )


def _pile(table: str, column: str, row: str, times: int = 1) -> tuple:
    return (
        times,
        f"analyses/{table}.parquet",
        column,
        f"corpus = 'pile' AND retriever = 'dense' AND {row}",
    )


# name -> what it is multiplied by, the file below data/, the column and its row or the key in JSON
FIGURES = {
    "bm25": _accuracy("bm25"),
    "dense": _accuracy("dense"),
    "hybrid": _accuracy("hybrid"),
    "replug": _accuracy("replug"),
    "popularity-over-doubt": (-100, "metrics/adaptive.json", "popqa.tiny.dense.uncertainty.difference", ""),
    "ensemble": _pile("bits_per_byte", "saved", "k = 5"),
    "one-prompt": _pile("lm_controls", "saved", "control = 'concatenated'"),
    "documents-in-prompt": _pile("lm_controls", "documents", "control = 'concatenated'"),
    "more-text": _pile("lm_controls", "saved", "control = 'longer_context'"),
    "text-to-document": _pile("lm_controls", "saved_over_same", "control = 'longer_context'", -1),
    "rare": _pile("rare_words", "bits_saved", "least = 100"),
    "frequent": _pile("rare_words", "bits_saved", "least = 10000"),
}  # fmt: skip


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Each page that shows a figure of the sample, and its text."""
    files = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    return {file: text for file, text in texts.items() if "<!--" in text}


def read(name: str, data: Path) -> Interval:
    """A figure of the run in `data`; its bounds are its value where the run gives it no
    interval.
    """
    times, file, key, row = FIGURES[name]
    if row:
        columns = duckdb.read_parquet(str(data / file)).columns
        bounds = [bound if (bound := f"{key}_{end}") in columns else key for end in ("low", "high")]
        (found,) = duckdb.sql(
            f"SELECT {', '.join([key, *bounds])} FROM '{data / file}' WHERE {row}"
        ).fetchall()
    else:
        entry = json.loads((data / file).read_text(encoding="utf-8"))
        while key:  # a name may hold a dot itself
            name = next(
                name
                for name in sorted(entry, key=len, reverse=True)
                if f"{key}.".startswith(f"{name}.")
            )
            entry, key = entry[name], key[len(name) + 1 :]
        found = entry["value"], entry["low"], entry["high"]
    return Interval(*found).times(times)


def shown(text: str) -> Iterator[tuple[str, list[float]]]:
    """The name of each figure in the sentences of a page, and its number or its number with the
    interval.
    """
    for found in FIGURE.finditer(text):
        name, value, _, low, _, high = found.groups()
        yield name, [float(number.replace(",", "")) for number in (value, low, high) if number]


@dataclass(frozen=True)
class Command:
    """A command of a page's block `sh`, and the part of its output that the page shows."""

    text: str
    output: str

    def excerpt(self, printed: str) -> str:
        """From what the command printed, the lines that the page shows in the present output."""
        shown = [*map(label, self.output.splitlines())]
        lines = printed.splitlines(keepends=True)
        labels = [*map(label, lines)]
        if shown[0] not in labels or shown[-1] not in labels:
            raise SystemExit(f"{self.text} does not print {shown[0]!r} or {shown[-1]!r}: {printed}")
        return "".join(lines[labels.index(shown[0]) : labels.index(shown[-1]) + 1])


def commands(text: str) -> Iterator[Command]:
    """The commands in the blocks `sh` of a page, without comments and with their variables."""
    for block, output in SHELL.findall(text):
        lines = re.sub(r"\s+# .*", "", block.replace("\\\n", "")).splitlines()
        *others, last = filter(None, lines)
        yield from (Command(line, "") for line in others)
        yield Command(last, output)


def fill(text: str, root: Path = ROOT) -> str:
    """A page's text with the figures of the run in `root`, and what commands on examples print."""

    def figure(found: re.Match) -> str:
        name, value, between, low, comma, high = found.groups()
        now = read(name, root / "data")
        if not between:
            return f"<!--{name}-->{_as(value, now.value)}"
        least = digits_beside_zero(now, 0)
        bounds = f"{_as(low, now.low, least)}{comma}{_as(high, now.high, least)}"
        return f"<!--{name}-->{_as(value, now.value, least)}{between}{bounds}]"

    text = FIGURE.sub(figure, text)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / EXAMPLES.name).symlink_to(root / EXAMPLES.name)
        for command in commands(text):
            if command.output:
                new = command.excerpt(run_longtail(command.text, Path(folder)))
                text = text.replace(command.output, new)
    return text


def run_longtail(command: str, folder: Path) -> str:
    """What `longtail ...` prints in a folder."""
    words = [sys.executable, "-m", "flows.cli", *shlex.split(command)[1:]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout


def label(line: str) -> str:
    """What a line begins with: the first cell of a table, or the text before a figure. A number at
    the front counts as any other.
    """
    return re.sub(r"^[\d,]+ ", "", re.split(r"\s{2,}|:", line.strip())[0])


def _as(written: str, value: float, least: int = 0) -> str:
    """The value with the decimals, at least so many, and the sign, of the number that is there."""
    sign = "+" if written.startswith("+") else ""
    decimals = max(least, len(written.partition(".")[2]))
    return f"{round(value, decimals) + 0.0:{sign},.{decimals}f}"  # no -0.0


def write_examples(data: Path, out: Path) -> None:
    """Write a question table, and answers without retrieval and with BM25, of the sample's run."""
    *questions, without_retrieval, bm25 = zip(
        *duckdb.sql(EXAMPLE_ROWS.format(data=data)).fetchall(), strict=True
    )
    ids = questions[0]
    head = ["id", "subj", "s_uri", "prop", "s_pop", "question", "possible_answers"]
    tables = {
        "questions.tsv": [head, *zip(*questions, strict=True)],
        "without_retrieval.csv": [["id", "prediction"], *zip(ids, without_retrieval, strict=True)],
        "bm25.csv": [["id", "prediction"], *zip(ids, bm25, strict=True)],
    }
    for name, rows in tables.items():
        delimiter = "\t" if name.endswith(".tsv") else ","
        with (out / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)


def main() -> None:
    if sys.argv[1:] == [EXAMPLES.name]:
        write_examples(ROOT / "data", EXAMPLES)
    for file, text in pages().items():
        file.write_text(fill(text), encoding="utf-8")
    picture = (ROOT / "data" / DRAWN).read_text(encoding="utf-8")
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)" width="\1" height="\2"', picture)
    width, height = (float(side) + 2 * MARGIN for side in size.groups())
    box = (
        f'viewBox="{-MARGIN} {-MARGIN} {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    )
    (ROOT / PICTURE).write_text(picture.replace(size[0], box), encoding="utf-8")


if __name__ == "__main__":
    main()
