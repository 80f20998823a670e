"""Stage fetch in the working directory: its params, published questions to ask about, and what
it brought.
"""

import bz2
import csv
import gzip
import json
import lzma
from pathlib import Path
from types import SimpleNamespace

import zstandard
from wikimedia_server import Wikimedia

from pipelines.params import params
from pipelines.questions.published import COLUMNS
from pipelines.sources.fetch import fetch
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.wikipedia import source_parts

DUMPS = params.Wikidata(source="dump", query_service="http://-", api="http://-")
RAW = Path("data/raw")
PAGES, QUESTIONS = RAW / "wikipedia/pages-articles.xml.bz2", RAW / "popqa/popQA.tsv"
PACK = {
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def saved(path: Path, data: str | bytes) -> Path:
    """Write data to a file, compressed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACK.get(path.suffix, bytes)(data.encode() if isinstance(data, str) else data))
    return path


def reasons(rejects: Rejects) -> list[tuple[int, str]]:
    """The rows that are kept, with their reasons."""
    return [(row, reason) for _, row, reason, _ in rejects.rows]


def settings(files: dict[str, list[str]], source: str = "wikimedia", **change) -> params.Fetch:
    chosen = {
        "source": source,
        "root": "root",
        "files": files,
        "redirects": [],
        "days_apart": 31,
        "pages": None,
    }
    return params.Fetch(**chosen | change)


def run(chosen: params.Fetch, wikidata=DUMPS, month="2021-10", seed=0) -> dict[str, float]:
    popularity = SimpleNamespace(month=month)
    given = {
        "seed": seed,
        "contact": "someone@example.org",
        "language": "en",
        "popularity": popularity,
    }
    return fetch(SimpleNamespace(**given, fetch=chosen, wikidata=wikidata), RAW)


def manifest() -> dict[str, dict]:
    """The entries of data/raw/manifest.json by path."""
    return {entry["path"]: entry for entry in json.loads((RAW / "manifest.json").read_text())}


def ask_about(titles: list[str], per_subject: int = 1) -> None:
    """Write root/popQA.tsv: questions about subjects Q1, Q2, ... whose pages had these titles."""
    Path("root").mkdir(exist_ok=True)
    rows = []
    for number, title in enumerate(titles * per_subject):
        subject = number % len(titles) + 1
        row = dict.fromkeys(COLUMNS, "x") | {
            "id": str(number),
            "prop": "author",
            "s_wiki_title": title,
        }
        row |= {name: str(subject) for name in ("subj_id", "prop_id", "obj_id", "s_pop", "o_pop")}
        row |= {name: '["a \\"name\\"","b"]' for name in ("s_aliases", "o_aliases")} | {
            "possible_answers": '["x"]'
        }
        row |= {name: f"http://www.wikidata.org/entity/Q{subject}" for name in ("s_uri", "o_uri")}
        rows.append(row)
    with Path("root/popQA.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def asking(server: Wikimedia, **change) -> params.Fetch:
    """The params that ask the API of a played server for the pages of root/popQA.tsv."""
    asked = {
        "api": f"{server.address}/api",
        "max_subjects": None,
        "namesakes": False,
        "others": 0,
    } | change
    return settings({"popqa": ["popQA.tsv"]}, pages=params.Pages(**asked))


def pages() -> dict[str, str]:
    """Title -> text, as the reader of dumps reads data/raw/wikipedia."""
    rejects = Rejects(0.0)
    raws = [raw for part in source_parts(PAGES) for raw in read_raw("wikipedia", part, rejects)]
    rejects.check()
    assert not rejects.skipped
    assert len({raw.source_document for raw in raws}) == len(raws)
    return {raw.title: raw.text for raw in raws}
