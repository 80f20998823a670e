"""A page of texts token by token: what each owes to memory and to documents (REPLUG, B)."""

import math
from pathlib import Path

from pipelines.errors import LongtailError
from pipelines.language import words
from pipelines.report.page import show
from pipelines.report.rendering import environment, inline
from pipelines.storage import database

SHOWN = ("lsr", "dense", "bm25")  # retrievers, of which the first that a run has is shown
FULL = 3.0  # bits that shade a token fully
CLEAR = 0.1  # a token that gains or loses at least so many bits is underlined


def render_attribution_page(texts: list[dict], intro: str, back: str = "") -> str:
    """The whole page, self-contained; `back` is the address of the page that led here, if one did."""
    css = inline("report.css") + inline("attribution.css")
    template = environment().get_template("attribution.html.j2")
    return template.render(intro=intro, texts=texts, back=back, full=f"{FULL:g}", css=css, script=inline("page.js"))


def holds(data: Path, corpus: str, query_id: str) -> bool:
    """Whether a text with this id is among a corpus's scored test queries."""
    table = data / "attribution" / corpus / "texts.parquet"
    query = "SELECT count(*) FROM texts WHERE query_id = ?"
    return table.is_file() and database.ask(query, [query_id], texts=table).fetchall()[0][0] > 0


def one_text(data: Path, corpus_name: str, retriever: str, query_id: str) -> dict:
    """What the template shows of a text. Raises LongtailError if the text was not scored."""
    folder, corpus = data / "attribution" / corpus_name, data / "corpus" / corpus_name

    def rows(file: Path, condition: str, *values: object) -> list[dict]:
        return database.ask(f"SELECT * FROM rows WHERE {condition}", values, rows=file).to_arrow_table().to_pylist()

    table, of_text = folder / "texts.parquet", "retriever = ? AND query_id = ?"
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
    found = {row["id"]: row for row in rows(corpus / "docs.parquet", "list_contains(?, id)", text["doc_ids"])}
    ranks = [rank for rank, doc_id in enumerate(text["doc_ids"], start=1) if doc_id]
    documents = [
        {
            "rank": rank,
            "id": document["id"],
            "beginning": words.beginning(" ".join((document["title"] or document["text"]).split()), 40),
            "text": document["text"],
            "weight": _percent(text["weights"][rank - 1]),
            "share": _percent(text["documents"][rank - 1]),
        }
        for rank in ranks
        for document in [found[text["doc_ids"][rank - 1]]]
    ]
    saved, before = (text["nats_none"] - text["nats"]) / math.log(2), text["nats_none"] / math.log(2)
    change = "save {:.1f} of them" if saved >= 0 else "cost {:.1f} more"
    return {
        "heading": f"The text: {saved:+.1f} bits".replace("-", "\N{MINUS SIGN}"),
        "summary": f"Query {query_id} ({query['source']}). Without documents the continuation takes {before:.1f} bits; "
        f"the documents {change.format(abs(saved))}, {100 * abs(saved) / before:.0f} %.",
        "context": query["context"],
        "tokens": [_token(token, ranks) for token in tokens],
        "memory": _percent(text["memory"]),
        "names": ["memory", *(f"{one['rank']}. {one['beginning']}" for one in documents)],
        "documents": documents,
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
    digits = min(max(1 - math.floor(math.log10(100 * share)), 0), 4) if share > 0 else 0
    return f"{100 * share:.{digits}f} %" if share <= 0 or share >= 5e-7 else "under 0.0001 %"
