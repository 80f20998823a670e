"""Documents with subject and answer: the stage `exposure`, beside a loop over the words of each document.

    .venv/bin/python -m benchmarks.exposure_speed
    .venv/bin/python -m benchmarks.exposure_speed --texts pile.jsonl.zst --popqa popQA.tsv    # real ones

Both count the same questions in the same text, which is checked. Each runs in a process of its own, on one core. Names
that begin or end with a mark are left out, since the loop looks at runs of words.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.corpus_generator import write_pile
from pipelines import params
from pipelines.evaluation import exposure
from pipelines.questions.published import read_published
from pipelines.sources.rejects import Rejects
from pipelines.sources.text_documents import read_documents

ROOT = Path(__file__).resolve().parents[1]
WORD = re.compile(r"[^\W_]+")
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
        c4=params.C4(sample_mb=1, match="all"),
        ingest=params.Ingest(max_reject_share=1.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100),
        compute=params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu"),
        parts=SimpleNamespace(answered=["popqa"]),
    )
    counts = exposure.count_exposure(settings, "pile", Path("raw"), Path("questions"), Path("out"))
    found = pq.read_table("out/pile/popqa.parquet", columns=["subject", "answer", "together"])
    return np.stack([column.to_numpy() for column in found.columns], axis=1), counts["bytes"]


def child(way: str) -> None:
    """One way; prints seconds of one core, bytes of text, the process's greatest memory, and keeps its counts."""
    (file,) = Path("raw/pile").iterdir()
    before, started = _peak(), time.process_time()
    counts, size = {"plain": plain, "stage": stage}[way](file)
    seconds = time.process_time() - started
    np.save(f"{way}.npy", counts)
    print(json.dumps({"seconds": seconds, "bytes": size, "memory": _peak(), "before": before}))


def _peak() -> int:
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def _ask_about(file: Path, count: int) -> list[dict]:
    """Questions whose subjects and answers are runs of one to three words of the text, so that many occur."""
    rng = np.random.default_rng(0)
    words = " ".join(document.text for document in islice(read_documents(file, Rejects(1.0)), 300)).split(" ")

    def names(most: int) -> list[str]:
        starts, lengths = rng.integers(0, len(words) - 3, most), rng.integers(1, 4, most)
        return [" ".join(words[s : s + n]) for s, n in zip(starts, lengths, strict=True)]

    return [{"subj": names(1)[0], "s_aliases": names(2), "possible_answers": names(3)} for _ in range(count)]


def _write(rows: list[dict], path: Path) -> int:
    """Write questions without the names that the loop can't find; returns the number of distinct names."""
    kept, names = [], set()
    for number, row in enumerate(rows):
        sides = [[row["subj"], *row["s_aliases"]], row["possible_answers"]]
        sides = [[n for n in side if n and WORD.match(n) and WORD.match(n[::-1])] for side in sides]
        if all(sides):
            of_row = {"question_id": f"{number:06}", "subj": sides[0][0], "s_aliases": sides[0][1:]}
            kept.append(of_row | {"possible_answers": sides[1]})
            names |= {*sides[0], *sides[1]}
    path.parent.mkdir(parents=True)
    strings = pa.list_(pa.string())
    kinds = [("question_id", pa.string()), ("subj", pa.string()), ("s_aliases", strings), ("possible_answers", strings)]
    pq.write_table(pa.Table.from_pylist(kept, pa.schema(kinds)), path)
    return len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=30, help="of generated text")
    parser.add_argument("--questions", type=int, default=14_000, help="on generated text")
    parser.add_argument("--texts", type=Path, help="a file in The Pile's layout")
    parser.add_argument("--popqa", type=Path, help="a file in PopQA's published format")
    parser.add_argument("--child", choices=["plain", "stage"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "raw/pile").mkdir(parents=True)
        file = folder / "raw/pile" / (given.texts.name if given.texts else "made.jsonl.zst")
        if given.texts:
            file.symlink_to(given.texts.resolve())
        else:
            write_pile(file, given.megabytes)
        rows = (
            read_published(given.popqa, Rejects(0.0)).to_pylist() if given.popqa else _ask_about(file, given.questions)
        )
        names = _write(rows, folder / QUESTIONS)
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        found = {}
        for way in ("plain", "stage"):
            command = [sys.executable, "-m", "benchmarks.exposure_speed", "--child", way]
            done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            found[way] = json.loads(done.stdout.splitlines()[-1])
        plainly, ours = (np.load(folder / f"{way}.npy") for way in found)
    assert found["plain"]["bytes"] == found["stage"]["bytes"]
    assert (plainly == ours).all(), "the two ways' counts differ"
    size = found["plain"]["bytes"] / 1e6
    print(f"{size:.1f} MB of text, {len(ours):,} questions, {names:,} names; {int((ours[:, 2] > 0).sum()):,} have a")
    print("document with both; the same counts both ways\n")
    print(f"{'':8}{'CPU s':>8}{'s per MB':>10}{'MB per s':>10}{'memory MB':>11}{'beyond imports':>16}")
    for way, one in found.items():
        memory = one["memory"] / 1e6, (one["memory"] - one["before"]) / 1e6
        speed = one["seconds"] / size
        print(f"{way:8}{one['seconds']:8.1f}{speed:10.3f}{1 / speed:10.2f}{memory[0]:11.0f}{memory[1]:16.0f}")
    print(f"plain / stage: {found['plain']['seconds'] / found['stage']['seconds']:.1f}")


if __name__ == "__main__":
    main()
