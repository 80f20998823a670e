"""The commands search and ask, and what a text owes to the language model's memory and to each document."""

import gc
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from flows import terminal
from pipelines import catalogue, methods, safe_text
from pipelines.errors import LongtailError
from pipelines.language import words
from pipelines.params import params_file

RETRIEVERS = (
    "bm25, dense (the main retriever, untuned), lsr (tuned by LSR; the default if the run has it), hybrid (bm25 and "
    "dense), reranked; for another retriever dense_NAME, lsr_NAME and so on."
)
Corpus = StrEnum("Corpus", catalogue.names("documents"))
LINES = 4  # lines of a document's text that the terminal shows


def search(
    text: Annotated[str, typer.Argument(help="The text to search with.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of documents.")] = 5,
    corpus: Annotated[
        Corpus | None, typer.Option(help="Corpus to search; by default parts.datastore.")
    ] = None,
    retriever: Annotated[str | None, typer.Option(help=RETRIEVERS)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole documents, as a JSON list.")
    ] = False,
) -> None:
    """Search a corpus. Shows score, title, id and the beginning of the best documents."""
    params = params_file.load_params("retrievers", "parts")
    corpus = corpus or params.parts.datastore or next(iter(params.parts.corpora), "")
    hits = search_corpus(text, corpus, retriever or _best(params), k)
    if as_json:
        print(safe_text.dumps(hits))
        return
    for line in hit_lines(hits, max(30, min(shutil.get_terminal_size().columns, 100))):
        terminal.show(line)


def ask(
    question: Annotated[
        str | None, typer.Argument(help="Without it, you type questions one by one.")
    ] = None,
    lm: Annotated[
        str | None, typer.Option(help="Of lms or imported; by default the first of lms.")
    ] = None,
    retriever: Annotated[str | None, typer.Option(help=RETRIEVERS)] = None,
    pair: Annotated[
        str | None, typer.Option(help="A pair of thresholds.pairs, such as dense_below_genread.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Wikidata id of the subject that is meant, such as Q42.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as a JSON object.")
    ] = False,
    attribute: Annotated[
        str | None, typer.Option(help="A scored text's id: what it owes to documents.")
    ] = None,
) -> None:
    """Answer a question, and say why. Retrieves only if the subject is less popular than its relation's threshold.

    Without a question, it prompts for questions until Ctrl-D, or reads them from a pipe, one a line. The model
    stays open.
    """
    from pipelines.adaptive import ask
    from pipelines.adaptive.ask import Opened
    from pipelines.answering import answer_files

    if attribute:
        best = retriever or _best(params_file.load_params("retrievers", "parts"))
        for line in attribute_text(attribute, best):
            terminal.show(line)
        return
    if subject and question is None:
        raise LongtailError("--subject: is that of one question, expected the question beside it")
    if subject and not re.fullmatch(r"Q\d+", subject):
        raise LongtailError(
            f"--subject {subject}: expected a Wikidata id, a Q and a number, such as Q42"
        )
    sections = (
        "seed",
        "language",
        "lm",
        "lms",
        "compute",
        "retriever",
        "retrievers",
        "reranker",
        "answer",
        "parts",
    )
    sections += ("replug", "ways")
    params = params_file.load_params(*sections)
    if not params.lms and not lm:
        raise LongtailError("params.yaml: lms is empty, expected a language model that answers")
    by = pair or answer_files.way(lm, retriever, params.lms, params.retrievers)
    by = by or index_of(retriever or _best(params), params).short_name(params.retrievers)
    gc.set_threshold(
        1_000_000
    )  # loading transformers makes a million objects, all to stay: looks at them take a fifth
    opened, failed = Opened() if question is None else None, False
    for text in terminal.questions() if question is None else [question]:
        text = text.encode(
            errors="replace"
        ).decode()  # no tokenizer takes an argument that is no UTF-8
        try:
            asked = ask.ask(
                text,
                lm or params.lms[0],
                by,
                params,
                subject=subject,
                data=Path("data"),
                opened=opened,
            )
        except LongtailError as error:
            if question is not None:
                raise
            failed = True
            print(f"error: {terminal.as_called(str(error))}", file=sys.stderr)
            continue
        if as_json:
            print(safe_text.dumps(asdict(asked)), flush=True)
            continue
        for line in ask.answer_lines(asked):
            terminal.show(line)
        sys.stdout.flush()
    if failed:
        raise SystemExit(1)


def search_corpus(text: str, corpus: str, retriever: str, k: int) -> list[dict[str, Any]]:
    """The best documents for a text, each with score, id, title and text; LongtailError where nothing is found."""
    from pipelines.retrieval import documents
    from pipelines.retrieval.retriever import open_index

    params = params_file.load_params("retriever", "retrievers", "reranker", "compute", "parts")
    text = text.encode(errors="replace").decode()  # no tokenizer takes an argument that is no UTF-8
    method = index_of(retriever, params)
    searched = [methods.index_folder(index, corpus) for index in method.indexes]
    docs = Path(f"data/corpus/{corpus}/docs.parquet")
    if not text.strip():
        raise LongtailError("the text is empty, expected some words to look for")
    if corpus not in params.parts.corpora:
        of_run = ", ".join(params.parts.corpora) or "none; set parts.corpora"
        raise LongtailError(
            f"--corpus {corpus}: this run has no such corpus, expected one of its own: {of_run}"
        )
    if missing := [str(index) for index in searched if not index.is_dir()]:
        raise LongtailError(f"{missing[0]}: no such index; `longtail run` makes it")
    opened = open_index(method, corpus, params, reranker=params.reranker)
    positions, scores = (row[0] for row in opened.search([text], k))
    if retriever == "bm25":
        positions, scores = positions[scores > 0], scores[scores > 0]
    if not len(positions):
        raise LongtailError(
            f"no document of {corpus} has a word of {words.beginning(text, 60)!r}; try others, or --retriever dense"
        )
    found = zip(map(float, scores), *documents.read_documents(docs, positions), strict=True)
    return [dict(zip(("score", "id", "title", "text"), hit, strict=True)) for hit in found]


def index_of(retriever: str, params: SimpleNamespace) -> methods.Method:
    """The index of a name. Raises LongtailError where there can be no such index."""
    kind = methods.Method.of_name(retriever).kind
    if methods.INDEXES.get(kind) != kind:
        raise LongtailError(
            f"--retriever {retriever}: expected bm25, dense, lsr, hybrid or reranked, or as dense_NAME"
        )
    return methods.Method.parse(retriever, params.retrievers)


def hit_lines(hits: list[dict[str, Any]], width: int) -> Iterator[str]:
    """Yield lines of at most `width` characters: rank, score, title and id of each hit, then how its text begins."""
    for rank, hit in enumerate(hits, 1):
        head, title = (
            f"{rank:3}  {hit['score']:8.4f}  ",
            f"{hit['title'] or '(no title)'}  [{hit['id']}]",
        )
        yield from textwrap.wrap(
            title, width, max_lines=LINES, initial_indent=head, subsequent_indent=" " * len(head)
        )
        text = textwrap.wrap(hit["text"], width - 5, max_lines=LINES, placeholder=" …")
        yield from (f"{'':5}{line}" for line in text)


def attribute_text(query_id: str, retriever: str) -> Iterator[str]:
    """Yield lines on what a scored text, its tokens and documents owe to the language model's memory."""
    from pipelines.explorer import lm_queries
    from pipelines.explorer.run import lookup, open_run

    run = open_run()
    corpora = lm_queries.corpora(run)
    holds = (
        name for name in corpora if lookup(lm_queries.table(run, name), "query_id", [query_id])
    )
    chosen = lm_queries.Texts.of(run, {"corpus": next(holds, ""), "retriever": retriever})
    text = lm_queries.read_scored_text(run, chosen, query_id)
    yield f"{text['bits']:.1f} bits without documents, of which these save {text['saved']:.1f}"
    yield f"{'bits':>8} {'saved':>8} {'memory':>8}  token"
    for token in text["tokens"]:
        yield f"{token.bits:8.2f} {token.saved:+8.2f} {100 * token.memory:6.1f} %  {token.text!r}"
    yield f"{100 * text['memory']:6.1f} %  memory"
    for document in text["documents"]:
        beginning = words.beginning(" ".join((document["title"] or document["text"]).split()), 40)
        yield f"{100 * document['share']:6.1f} %  document {document['rank']}, {document['id']}: {beginning}"


def _best(params: SimpleNamespace) -> str:
    """The main retriever, tuned if the run tunes it; BM25 in a run without retrievers."""
    if not params.retrievers:
        return "bm25"
    return "lsr" if params.retrievers[0] in params.parts.tuned else "dense"
