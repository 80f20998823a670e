"""What texts owe to memory and to documents: a section on rare words, and a page of texts by token (REPLUG, B)."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from textwrap import shorten

import numpy as np

from pipelines.errors import LongtailError
from pipelines.report.page import label, show
from pipelines.report.rendering import environment, inline
from pipelines.storage import database

SHOWN = ("lsr", "dense", "bm25")  # retrievers; the first of them that a run has is shown on the page
EACH = 3  # texts of each kind
FULL = 3.0  # bits that shade a token fully
CLEAR = 0.1  # a token that gains or loses at least so many bits is underlined
NAME = "attribution.html"
TITLE = "Whose knowledge: memory or documents"
FOOTER = (
    "Made by Longtail from data/attribution, which covers all scored texts and all retrievers. The texts were chosen "
    "by rule, not by hand."
)


def shown_retriever(data: Path, corpus: str) -> str:
    """The retriever whose documents the page shows: the first of SHOWN that a corpus's texts were attributed with."""
    table = data / "attribution" / corpus / "texts.parquet"
    names = database.ask("SELECT DISTINCT retriever FROM texts", texts=table).fetchall()
    return next(name for name in SHOWN if (name,) in names)


def chosen(data: Path, corpus: str, retriever: str) -> list[tuple[str, str]]:
    """(query_id, why) of the texts shown: where documents save most bits, the median, where they cost most."""
    ids = [
        query_id
        for (query_id,) in database.ask(
            "SELECT query_id FROM texts WHERE retriever = ? ORDER BY nats_none - nats DESC, query_id",
            [retriever],
            texts=data / "attribution" / corpus / "texts.parquet",
        ).fetchall()
    ]
    n, middle = len(ids), max(0, (len(ids) - EACH) // 2)
    places = {
        **{place: "Helped most" for place in range(min(EACH, n))},
        **{place: "In the middle" for place in range(middle, min(middle + EACH, n)) if place >= EACH},
    }
    places |= {place: "Helped least" for place in range(max(n - EACH, 0), n) if place not in places}
    return [(ids[place], places[place]) for place in sorted(places)]


def write_attribution_page(data: Path, corpus: str, lm: str, path: Path) -> None:
    """Write the page on the texts of a corpus that `chosen` names, as the language model `lm` reads them."""
    retriever = shown_retriever(data, corpus)
    texts = chosen(data, corpus, retriever)
    kinds = {
        "Helped most": "on which the retrieved documents save most bits",
        "In the middle": "in the middle",
        "Helped least": "on which they save least or cost most",
    }
    counts = Counter(why for _, why in texts)
    parts = ", ".join(f"{counts[why]} {words}" for why, words in kinds.items() if counts[why])
    intro = f"Texts of the test set as {lm} reads them: {parts}. Documents by {label(retriever)}."
    path.write_text(
        render_attribution_page([one_text(data, corpus, retriever, *text) for text in texts], intro), encoding="utf-8"
    )


def render_attribution_page(texts: list[dict], intro: str) -> str:
    """The whole page, self-contained."""
    css = inline("report.css") + inline("attribution.css")
    template = environment().get_template("attribution.html.j2")
    return template.render(
        title=TITLE, intro=intro, texts=texts, full=f"{FULL:g}", footer=FOOTER, css=css, script=inline("page.js")
    )


def holds(data: Path, corpus: str, query_id: str) -> bool:
    """Whether a text with this id is among a corpus's scored test queries."""
    table = data / "attribution" / corpus / "texts.parquet"
    query = "SELECT count(*) FROM texts WHERE query_id = ?"
    return table.is_file() and database.ask(query, [query_id], texts=table).fetchall()[0][0] > 0


def one_text(data: Path, corpus_name: str, retriever: str, query_id: str, why: str) -> dict:
    """What the template shows of a text. Raises LongtailError if the text was not scored."""
    folder, corpus = data / "attribution" / corpus_name, data / "corpus" / corpus_name

    def rows(file: Path, condition: str, *values: object) -> list[dict]:
        result = database.ask(f"SELECT * FROM rows WHERE {condition}", values, rows=file)
        return [dict(zip(result.columns, row, strict=True)) for row in result.fetchall()]

    table, of_text = folder / "texts.parquet", "retriever = ? AND query_id = ?"
    if not table.is_file():
        raise LongtailError(f"{table}: no such file; `longtail run` writes it")
    known = rows(table, of_text, retriever, query_id)
    if not known:
        ((example,),) = database.ask("SELECT min(query_id) FROM texts", texts=table).fetchall()
        raise LongtailError(
            f"{table}: no text {query_id!r} with documents by {retriever}, expected the id of a test query of "
            f"{corpus}/queries.parquet that was scored, as {example}"
        )
    (text,) = known
    tokens = rows(folder / "tokens.parquet", f"{of_text} ORDER BY token", retriever, query_id)
    (query,) = rows(corpus / "queries.parquet", "id = ?", query_id)
    found = rows(corpus / "docs.parquet", "list_contains(?, id)", text["doc_ids"])
    documents = {document["id"]: document for document in found}
    ranks = [rank for rank, doc_id in enumerate(text["doc_ids"], start=1) if doc_id]
    retrieved = [documents[text["doc_ids"][rank - 1]] for rank in ranks]
    beginnings = [shorten(document["title"] or document["text"], 40, placeholder=" …") for document in retrieved]
    saved, before = (text["nats_none"] - text["nats"]) / math.log(2), text["nats_none"] / math.log(2)
    change = "save {:.1f} of them" if saved >= 0 else "cost {:.1f} more"
    return {
        "heading": f"{why}: {saved:+.1f} bits".replace("-", "\N{MINUS SIGN}"),
        "summary": f"Query {query_id} ({query['source']}). Without documents the continuation takes {before:.1f} bits; "
        f"the documents {change.format(abs(saved))}, {100 * abs(saved) / before:.0f} %.",
        "context": query["context"],
        "tokens": [_token(token, ranks) for token in tokens],
        "memory": _percent(text["memory"]),
        "names": ["memory", *(f"{rank}. {words}" for rank, words in zip(ranks, beginnings, strict=True))],
        "documents": [
            {
                "rank": rank,
                "id": document["id"],
                "beginning": words,
                "text": document["text"],
                "weight": _percent(text["weights"][rank - 1]),
                "share": _percent(text["documents"][rank - 1]),
            }
            for rank, words, document in zip(ranks, beginnings, retrieved, strict=True)
        ],
    }


def _token(token: dict, ranks: list[int]) -> dict:
    gain = (token["log_prob"] - token["log_prob_none"]) / math.log(2)
    shares = [(token["memory"], "")]
    shares += [(token["documents"][rank - 1], _percent(token["responsibilities"][rank - 1])) for rank in ranks]
    seen = token["frequency"]
    return {
        "text": token["text"],
        "kind": ("gain" if gain > 0 else "loss") + " clear" * (abs(gain) >= CLEAR),
        "level": round(min(1.0, abs(gain) / FULL), 2),
        "bits": round(gain, 3),
        "gain": f"{round(gain, 2) + 0.0:+.2f}".replace("-", "\N{MINUS SIGN}"),
        "none": _percent(math.exp(token["log_prob_none"])),
        "mixed": _percent(math.exp(token["log_prob"])),
        "frequency": show(seen),
        "word": "" if seen is None else f"The corpus has its word {seen:,} times.",
        "shares": [(round(share, 4), _percent(share), posterior) for share, posterior in shares],
    }


def _percent(share: float) -> str:
    digits = np.clip(1 - math.floor(math.log10(100 * share)), 0, 4) if share > 0 else 0
    return f"{100 * share:.{digits}f} %" if share <= 0 or share >= 5e-7 else "under 0.0001 %"
