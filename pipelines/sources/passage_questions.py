"""Questions with passages retrieved for them, as JSON lines in the layout of DPR's and Contriever's output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_text


class Asked(NamedTuple):
    id: str  # "<file>/<line>"
    dataset: str  # that the question is from; "" where the line doesn't say
    text: str
    answers: list[str]
    passages: list[tuple[str, str]]  # title, text; without those that have no text


def read_contexts(folder: Path, rejects: Rejects) -> Iterator[Asked]:
    """The questions of every *.jsonl below `folder`.

    A line has "question", "answers" (or "ground_truth") and "ctxs" (or "context"), a list of passages: objects with
    "text" and perhaps "title", or plain texts. "data_source" names the question's data set. Bad lines go to `rejects`
    ("not JSON", "no question", "no answers", "no passages").
    """
    for path in sorted(folder.rglob("*.jsonl")):
        for number, line in enumerate(open_text(path), start=1):
            rejects.read += 1
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                rejects.add(path, number, "not JSON", line)
                continue
            row = row if isinstance(row, dict) else {}
            text, dataset = (row.get(name) for name in ("question", "data_source"))
            answers = _texts(row.get("answers", row.get("ground_truth")))
            passages = list(_passages(row.get("ctxs", row.get("context"))))
            if not isinstance(text, str) or not text.strip():
                rejects.add(path, number, "no question", line)
            elif not answers:
                rejects.add(path, number, "no answers", line)
            elif not passages:
                rejects.add(path, number, "no passages", line)
            else:
                dataset = dataset if isinstance(dataset, str) else ""
                yield Asked(f"{path.stem}/{number}", dataset, text.strip(), answers, passages)


def _texts(found: object) -> list[str]:
    return [one for one in found if isinstance(one, str) and one.strip()] if isinstance(found, list) else []


def _passages(found: object) -> Iterator[tuple[str, str]]:
    for one in found if isinstance(found, list) else []:
        title, text = (one.get("title"), one.get("text")) if isinstance(one, dict) else ("", one)
        if isinstance(text, str) and text.strip():
            yield title if isinstance(title, str) else "", " ".join(text.split())
