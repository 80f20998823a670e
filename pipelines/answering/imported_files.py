"""Files of answers that were brought in: what each says of itself, and which fit their question set and model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pipelines import parquet
from pipelines.methods import METHODS, split

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # of an imported model or method, which are a folder and a file
ABOUT = b"longtail"  # key of what an import's file says of itself
AGAIN = "import it again, or `longtail imports --remove {}`"


def about(file: Path) -> dict[str, str]:
    """What `longtail import-answers` wrote of an import: its kind, the layout and name of its file; else nothing."""
    metadata = parquet.schema_of(file).metadata or {}
    return json.loads(metadata.get(ABOUT, b"{}"))


def kind_by_name(method: str) -> str:
    """What a method is by its name, one of methods.KINDS; "" if the name does not tell."""
    kind = split(method)[0]
    return "" if kind not in METHODS else "closed_book" if kind == "closed_book" else "retrieval"


def brings_text(method: str, file: Path) -> bool:
    """Whether answers by this method cost a retrieval: all but closed-book ones and imports of another kind."""
    return method != "closed_book" and about(file).get("kind") != "other"


def imports(root: Path = Path("data")) -> list[Path]:
    """Every import, by question set, model and method."""
    return sorted(file for file in (root / "imported").glob("*/*/*.parquet") if file.parts[-3] != "popularity")


def size(file: Path) -> int:
    """How many answers a file has."""
    return parquet.metadata(file).num_rows


def fitting(files: dict[str, Path], splits: Mapping[str, str], only: str) -> tuple[dict[str, Path], list[str]]:
    """The files of a model that answer the same questions, all of them the set's; and what is wrong with the others.

    Which questions these are the closed-book answers say, without them the first file.
    """
    ids_of, sentences = {}, []
    for method, file in files.items():
        table = parquet.read(file, ["question_id", "correct"])
        ids, judged = table["question_id"].to_pylist(), table["correct"].to_pylist()
        foreign = sum(id_ not in splits for id_ in ids)
        kept = {id_ for id_ in ids if only == "all" or splits.get(id_) == "test"}
        if foreign:
            why = f"{foreign:,} of its {len(ids):,} rows answer no question of the set"
        elif len(set(ids)) < len(ids):
            why = f"{len(ids) - len(set(ids)):,} of its ids are there more than once"
        elif None in judged:
            why = f"{judged.count(None):,} of its rows are not judged"
        elif not kept:
            why = "none of its rows is of the test split (thresholds.imported)"
        else:
            ids_of[method] = kept
            continue
        sentences.append(f"{file} is left out: {why}; {AGAIN.format(file)}")
    first = next((method for method in ("closed_book", *ids_of) if method in ids_of), "")
    for method, ids in list(ids_of.items()):
        if ids != ids_of[first]:
            del ids_of[method]
            other, missing = len(ids - ids_of[first]), len(ids_of[first] - ids)
            sentences.append(
                f"{files[method]} is left out: it answers {other:,} questions that {files[first].name} does not, and "
                f"lacks {missing:,}; {AGAIN.format(files[method])}"
            )
    return {method: files[method] for method in ids_of}, sentences
