"""Documents with subject and answer: the stage `exposure`, beside a loop over the words of each document.

    .venv/bin/python -m benchmarks.exposure_speed

Both count the same questions in the same text, which is checked: generated ones, and the Pile's excerpt and PopQA of
$LONGTAIL_REAL. Each runs in a process of its own, on one core. Names that begin or end with a mark are left out, since
the loop looks at runs of words.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from benchmarks import measure
from benchmarks.corpus_generator import write_pile
from benchmarks.measure import Row
from pipelines import params
from pipelines.evaluation import exposure
from pipelines.questions.published import read_published
from pipelines.sources.rejects import Rejects
from pipelines.sources.text_documents import read_documents

WORD = re.compile(r"[^\W_]+")
PEER = "a loop over words, all names in a dict"
QUESTIONS = Path("questions/popqa/popqa.parquet")


def plain(file: Path) -> tuple[np.ndarray, int]:
    """A loop over documents, their words, and the runs of words that begin there, with all names in a dict."""
    asked = pq.read_table(QUESTIONS).to_pylist()
    sets: dict[str, list[tuple[int, int]]] = {}
    for number, row in enumerate(asked):
        for side, names in enumerate(([row["subj"], *row["s_aliases"]], row["possible_answers"])):
            for name in set(names):
                sets.setdefault(name, []).append((number, side))
    longest = max(len(WORD.findall(name)) for name in sets)
    counts, size = np.zeros((len(asked), 3), np.int64), 0
    for document in read_documents(file, Rejects(1.0)):
        text = document.text
        size += len(text.encode())
        spans = [match.span() for match in WORD.finditer(text)]
        found: tuple[set[int], set[int]] = set(), set()
        for first, (begin, _) in enumerate(spans):
            for _, end in spans[first : first + longest]:
                for number, side in sets.get(text[begin:end], ()):
                    found[side].add(number)
        for column, numbers in enumerate((*found, found[0] & found[1])):
            for number in numbers:
                counts[number, column] += 1
    return counts, size


def stage(file: Path) -> tuple[np.ndarray, int]:
    """The stage's way, in one process."""
    settings = SimpleNamespace(
        language="en",
        c4=params.C4(sample_mb=1, match="all"),
        ingest=params.Ingest(max_reject_share=1.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100),
        compute=measure.compute(),
        parts=SimpleNamespace(answered=["popqa"]),
    )
    counts = exposure.count_exposure(settings, "pile", Path("raw"), Path("questions"), Path("out"))
    found = pq.read_table("out/pile/popqa.parquet", columns=["subject", "answer", "together"])
    return np.stack([column.to_numpy() for column in found.columns], axis=1), counts["bytes"]


def reading(file: Path) -> int:
    """The most that any way can reach: documents read, and not looked at."""
    return sum(1 for _ in read_documents(file, Rejects(1.0)))


def _ask_about(file: Path, count: int) -> list[dict]:
    """Questions whose subjects and answers are runs of one to three words of the text, so that many occur."""
    rng = np.random.default_rng(0)
    words = " ".join(document.text for document in islice(read_documents(file, Rejects(1.0)), 300)).split(" ")

    def names(most: int) -> list[str]:
        starts, lengths = rng.integers(0, len(words) - 3, most), rng.integers(1, 4, most)
        return [" ".join(words[s : s + n]) for s, n in zip(starts, lengths, strict=True)]

    return [{"subj": names(1)[0], "s_aliases": names(2), "possible_answers": names(3)} for _ in range(count)]


def _write(rows: list[dict], path: Path) -> None:
    """Write questions without the names that the loop can't find."""
    kept = []
    for number, row in enumerate(rows):
        sides = [[row["subj"], *row["s_aliases"]], row["possible_answers"]]
        sides = [[n for n in side if n and WORD.match(n) and WORD.match(n[::-1])] for side in sides]
        if all(sides):
            of_row = {"question_id": f"{number:06}", "subj": sides[0][0], "s_aliases": sides[0][1:]}
            kept.append(of_row | {"possible_answers": sides[1]})
    path.parent.mkdir(parents=True)
    strings = pa.list_(pa.string())
    kinds = [("question_id", pa.string()), ("subj", pa.string()), ("s_aliases", strings), ("possible_answers", strings)]
    pq.write_table(pa.Table.from_pylist(kept, pa.schema(kinds)), path)


def compare(what: str, rounds: int) -> Row:
    (file,) = Path("raw/pile").iterdir()
    ways = {way.__name__: partial(measure.alone, way, file) for way in (plain, stage, reading)}
    plainly, ours, limit = measure.best(ways, rounds).values()
    assert (plainly.result[0] == ours.result[0]).all(), "the two ways' counts differ"
    assert plainly.result[1] == ours.result[1]
    size = ours.result[1] / 1e6
    limits = {"limit": "reading the file", "most": size / limit.cpu}
    return measure.row(f"{what}, {size:.1f} MB", PEER, "MB", size, plainly, ours, **limits)


def made(megabytes: float, questions: int) -> None:
    file = Path("raw/pile/made.jsonl.zst")
    write_pile(file, megabytes)
    _write(_ask_about(file, questions), QUESTIONS)


def rows(quick: bool = False, megabytes: float = 10.0, questions: int = 14_000) -> list[Row]:
    texts, popqa = measure.real("pile/pile_sample.jsonl.zst"), measure.real("popqa/popQA.tsv")
    rounds, found = 1 if quick else 2, []
    for name in ("generated", "the Pile's excerpt and PopQA"):
        what = f"documents with subject and answer of a question, {name}"
        with measure.in_folder():
            Path("raw/pile").mkdir(parents=True)
            if name == "generated":
                measure.alone(made, *((0.2, 200) if quick else (megabytes, questions)))
            elif not (texts and popqa):
                found.append(Row(what, PEER, missing=measure.NO_FILES))
                continue
            else:
                with zstandard.open(texts, "rt") as lines, zstandard.open(Path("raw/pile", texts.name), "wt") as file:
                    file.writelines(islice(lines, 20 if quick else None))
                _write(read_published(popqa, Rejects(0.0)).to_pylist(), QUESTIONS)
            found.append(compare(what, rounds))
    return found


if __name__ == "__main__":
    measure.main(rows)
