"""What texts owe to memory and to documents: a section on rare words, and a page of texts by token (REPLUG, B)."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from textwrap import shorten

import numpy as np

from pipelines import database
from pipelines.errors import LongtailError
from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Link, Percent, Section, Share, Table, label, show
from pipelines.report.rendering import environment, inline

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


def rarity(inputs: Inputs) -> Section:
    """The report's section: bits saved by how rare a word is, memory's share, and a link to the page."""
    title = "Whose knowledge, and which words gain"
    by_retriever = inputs.metrics.get("attribution", {}).get(inputs.main_corpus, {})
    by_retriever = {name: by_retriever[name] for name in retrievers_of(by_retriever)}
    retriever = next((name for name in SHOWN if name in by_retriever), "")
    if not retriever or not by_retriever[retriever]["by_frequency"]:
        return Section("attribution", title)
    rows = by_retriever[retriever]["by_frequency"]
    counted_in = label(by_retriever[retriever]["counted_in"])
    gains = {name: [interval(row["gain"]) for row in figure["by_frequency"]] for name, figure in by_retriever.items()}
    first, last = (gains[retriever][i] for i in (0, -1))
    says = (
        f"With the documents of {label(retriever)}, the rarest words ({_range(rows[0])} times in {counted_in}) gain "
        f"{show(first)} bits a token, the most frequent ({_range(rows[-1])}) {show(last)}."
    )
    blocks = [
        "A token's probability with documents is shared out. Memory has the share that the model gives the token "
        "without documents; a document has what it adds to that. How often C4, or the corpus where a run has no C4, "
        "has the token's word says how rare it is. The paper's example is a rare name, which the documents spell out "
        "and the model does not know.",
        Link(f"Texts of the test set, token by token, with each document's share ({NAME})", NAME),
        figures.bars(
            "gain-by-frequency",
            [_range(row) for row in rows],
            gains,
            y="bits saved per token",
            caption=f"Bits that documents save per token, by how often {counted_in} has the token's word.",
        ),
        Table(
            "gain-by-frequency",
            f"Tokens by how often {counted_in} has their word: bits without documents, bits saved, and memory's share "
            f"of the probability with the documents of {label(retriever)}.",
            [
                *("word's frequency", "tokens", "bits without documents"),
                *(f"saved, {label(name)}" for name in gains),
                "memory",
            ],
            [
                [
                    *(_range(row), row["tokens"], interval(row["none"])),
                    *(gains[name][i] for name in gains),
                    interval(row["memory"]),
                ]
                for i, row in enumerate(rows)
            ],
        ),
        *_weights(inputs.data, inputs.main_corpus),
        *_copied(by_retriever, inputs.main_corpus),
        *_elsewhere(inputs),
    ]
    return Section("attribution", title, blocks, says=says)


def _weights(data: Path, corpus: str) -> list[Table]:
    """REPLUG's weight (lambda) of each document of the texts on the page."""
    retriever = shown_retriever(data, corpus)
    texts = chosen(data, corpus, retriever)
    rows = database.ask(
        "SELECT query_id, (nats_none - nats) / ln(2), weights, doc_ids FROM texts WHERE retriever = ?",
        [retriever],
        texts=data / "attribution" / corpus / "texts.parquet",
    ).fetchall()
    of_text = {query_id: (saved, weights, documents) for query_id, saved, weights, documents in rows}
    most = max(len(of_text[query_id][1]) for query_id, _ in texts)
    lines = []
    for query_id, why in texts:
        saved, weights, documents = of_text[query_id]
        shares = [Share(weight) if document else None for weight, document in zip(weights, documents, strict=True)]
        lines.append([query_id, why, saved, *shares, *[None] * (most - len(shares))])
    return [
        Table(
            "document-weights",
            f"{label(corpus)}: the weight of each document in the ensemble for the texts of {NAME}, in per cent, by "
            f"the similarity that {label(retriever)} gives it, most similar first; and bits saved.",
            ["text", "why it is shown", "bits saved", *(f"document {rank}" for rank in range(1, most + 1))],
            lines,
        )
    ]


def _copied(by_retriever: dict[str, dict], corpus: str) -> list[str | Table]:
    """How much of what documents save is copying; nothing where the model's tokenizer is not known."""
    rows = [
        [
            label(name),
            f"{row['least']} or more" if row["most"] is None else f"{row['least']} to {row['most']}",
            *(row["tokens"], interval(row["none"]), interval(row["gain"]), Percent(interval(row["share_of_gain"]))),
        ]
        for name, figures_of_retriever in by_retriever.items()
        for row in figures_of_retriever["by_shared"]
    ]
    if not rows:
        return []
    return [
        "How much of this is copying? A token is sorted by the longest n-gram of tokens that it is part of and that "
        "one of the documents has too.",
        Table(
            "gain-by-shared-ngram",
            f"{label(corpus)}: tokens by the longest n-gram of the continuation that is in a document: bits per token "
            "without documents, bits saved, and the row's share of all bits saved.",
            ["documents", "longest n-gram", "tokens", "bits without documents", "bits saved", "share of saved, %"],
            rows,
        ),
    ]


def _elsewhere(inputs: Inputs) -> list[Table]:
    """Rare words in the other scored corpora."""
    rows = [
        [label(corpus), label(name), label(of_corpus[name]["counted_in"]), _range(row), row["tokens"]]
        + [interval(row[kind]) for kind in ("none", "gain", "memory")]
        for corpus in inputs.parts.scored
        if corpus != inputs.main_corpus
        for of_corpus in [inputs.metrics["attribution"].get(corpus, {})]
        for name in retrievers_of(of_corpus)
        for row in of_corpus[name]["by_frequency"]
    ]
    if not rows:
        return []
    return [
        Table(
            "gain-by-frequency-elsewhere",
            "The other corpora: tokens by how often their word occurs, bits without documents, bits saved, and "
            "memory's share of the probability.",
            [
                *("corpus", "documents", "counted in", "word's frequency", "tokens"),
                *("bits without documents", "saved", "memory"),
            ],
            rows,
        )
    ]


def _range(row: dict) -> str:
    return f"{row['least']:,} to {row['most']:,}" if row["most"] else "never"


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


def write(data: Path, corpus: str, lm: str, path: Path) -> None:
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
    path.write_text(render([one_text(data, corpus, retriever, *text) for text in texts], intro), encoding="utf-8")


def render(texts: list[dict], intro: str) -> str:
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
