"""Published questions, and the pages of their subjects as stage fetch asks the API for them."""

import csv
from pathlib import Path

from wikimedia_server import Wikimedia

from pipelines import params
from pipelines.questions.published import COLUMNS
from pipelines.sources.fetch import fetch
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.wikipedia import parts

DUMPS = params.Wikidata(source="dump", query_service="http://-", api="http://-", page=10)
PAGES, QUESTIONS, REJECTS = (
    Path("data/raw", name) for name in ("wikipedia/pages-articles.xml.bz2", "popqa/popQA.tsv", "rejects.parquet")
)


def ask_about(titles: list[str], per_subject: int = 1) -> None:
    """Write root/popQA.tsv: questions about subjects Q1, Q2, ... whose pages had these titles."""
    Path("root").mkdir(exist_ok=True)
    rows = []
    for number, title in enumerate(titles * per_subject):
        subject = number % len(titles) + 1
        row = dict.fromkeys(COLUMNS, "x") | {"id": str(number), "prop": "author", "s_wiki_title": title}
        row |= {name: str(subject) for name in ("subj_id", "prop_id", "obj_id", "s_pop", "o_pop")}
        row |= {name: '["a \\"name\\"","b"]' for name in ("s_aliases", "o_aliases")} | {"possible_answers": '["x"]'}
        row |= {name: f"http://www.wikidata.org/entity/Q{subject}" for name in ("s_uri", "o_uri")}
        rows.append(row)
    with Path("root/popQA.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def settings(
    server: Wikimedia, max_subjects: int | None = None, namesakes: bool = False, others: int = 0, **change
) -> params.Fetch:
    pages = params.Pages(api=f"{server.address}/api", max_subjects=max_subjects, namesakes=namesakes, others=others)
    chosen = {
        "source": "wikimedia",
        "root": "root",
        "files": {"popqa": ["popQA.tsv"]},
        "redirects": [],
        "days_apart": 31,
        "pages": pages,
    }
    return params.Fetch(**chosen | change)


def run(chosen: params.Fetch, seed: int = 0, contact: str | None = "someone@example.org") -> dict[str, float]:
    return fetch(Path("data/raw"), seed, contact, chosen, DUMPS, None, "2021-10")


def pages() -> dict[str, str]:
    """Title -> text, as the reader of dumps reads data/raw/wikipedia."""
    rejects = Rejects(0.0)
    raws = [raw for part in parts(PAGES) for raw in read_raw("wikipedia", part, rejects)]
    rejects.check()
    assert not rejects.skipped
    assert len({raw.source_document for raw in raws}) == len(raws)
    return {raw.title: raw.text for raw in raws}
