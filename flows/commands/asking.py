"""Commands that search a corpus and answer questions: search and ask."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import terminal
from flows.commands.options import JsonOption, RetrieverOption, print_json
from flows.commands.prediction_options import ColumnsOption, QuestionsOption, read_questions
from pipelines import catalogue, methods
from pipelines.errors import LongtailError
from pipelines.language import words
from pipelines.methods import Method
from pipelines.params import params_file

if TYPE_CHECKING:
    from pipelines.adaptive.ask import AskedQuestion, Settings
    from pipelines.retrieval.documents import Passage
    from pipelines.retrieval.passage_layouts import Search

Corpus = StrEnum("Corpus", catalogue.names("documents"))  # type: ignore[misc]
# the names of pipelines.retrieval.passage_layouts.LAYOUTS, whose import takes longer than the help
Layout = StrEnum("Layout", ["flashrag", "lm-eval"])  # type: ignore[misc]
DEFAULT_LAYOUT = Layout("flashrag")
TEXT_LINES = 4  # of a document's text that the terminal shows
LEAST_WIDTH = 30  # characters of a line
MOST_WIDTH = 100


def search(
    text: Annotated[str | None, typer.Argument(help="The text to search with.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of documents.")] = 5,
    corpus: Annotated[
        Corpus | None, typer.Option(help="Corpus to search; by default parts.datastore.")
    ] = None,
    retriever: RetrieverOption = None,
    questions: QuestionsOption = None,
    columns: ColumnsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="With --questions, the file of their best documents.")
    ] = None,
    layout: Annotated[
        Layout, typer.Option(help="Which harness reads the file of --out.")
    ] = DEFAULT_LAYOUT,
    as_json: JsonOption = False,
) -> None:
    """Search a corpus.

    Shows score, title, id and the beginning of the best documents; with --json the whole documents.
    With --questions and --out, it writes the best documents of every question for another harness.
    """
    _check_search(text, questions, out, as_json)
    params = params_file.load_params()
    name = corpus or params.parts.datastore or next(iter(params.parts.corpora), "")
    retriever = retriever or _first_retriever(params)
    if out:
        _write_passages(questions, columns, out, layout, open_corpus(name, retriever, k))
        return

    assert text is not None, "_check_search raises"
    (hits,) = open_corpus(name, retriever, k)([text])
    if not hits:
        beginning = words.beginning(_tokenizable(text), 60)
        raise LongtailError(
            f"BM25 finds none of the words {beginning!r} in {name}; it leaves out common words "
            "such as 'the'; try others, or --retriever dense"
        )
    if as_json:
        print_json(hits)
        return
    terminal.show_lines(hit_lines(hits))


def _check_search(text: str | None, questions: str | None, out: Path | None, as_json: bool) -> None:
    """Raise LongtailError unless there is a text, or a file of questions and one to write."""
    if questions is None and out is None:
        if text is None:
            raise LongtailError("no text, expected some words, or --questions FILE --out FILE")
        if not _tokenizable(text).strip():
            raise LongtailError("the text is empty, expected some words to look for")
    elif text is not None or questions is None or out is None:
        raise LongtailError("expected a text alone, or --questions FILE and --out FILE without one")
    elif as_json:
        raise LongtailError("--json: prints the documents of a text, expected no --out with it")


def _write_passages(
    questions: str | None, columns: list[str] | None, out: Path, layout: Layout, find: "Search"
) -> None:
    """Write the best documents of a file's questions, and say how many have none."""
    from pipelines.retrieval import passage_layouts

    file = (terminal.CALLED_FROM / out).resolve()
    terminal.check_folder(file.parent)
    if file.is_dir():
        raise LongtailError(f"--out {out}: a folder, expected a file to write")
    table = read_questions(questions, columns, needed=("question",))
    columns_of_questions = (table.ids, table.asked.questions, table.asked.answers)
    asked = list(map(passage_layouts.AnsweredQuestion, *columns_of_questions))
    for question in asked:
        if not question.text:
            raise LongtailError(f"{table.name}: the question {question.id} has no text; fill it")
    without_passages = passage_layouts.write_passages(file, layout, asked, find)

    terminal.show_lines(table.described())
    terminal.show(f"the best documents of {len(table.ids):,} questions: {file}")
    if without_passages:
        terminal.show(f"{without_passages:,} of them have no document with a word of theirs")


def ask(
    question: Annotated[
        str | None, typer.Argument(help="Without it, you type questions one by one.")
    ] = None,
    lm: Annotated[
        str | None,
        typer.Option(help="A model of lms, by default the first."),
    ] = None,
    retriever: RetrieverOption = None,
    pair: Annotated[
        str | None, typer.Option(help="A pair of thresholds.pairs, such as dense_below_genread.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Wikidata id of the subject that is meant, such as Q42.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question, and say why.

    Retrieves only if the subject is less popular than its relation's threshold. Without a question,
    it prompts for questions until Ctrl-D, or reads them from a pipe, one a line. The model stays
    open.
    """
    from pipelines.adaptive.ask import Settings

    _check_subject(subject, question)
    settings = params_file.load_settings(Settings)
    if not settings.lms:
        raise LongtailError("params.yaml: lms is empty, expected a language model that answers")
    pair = pair or _method_of(retriever, lm, settings)
    lm = lm or settings.lms[0]

    if question is not None:
        _show_answer(_answer(question, lm, pair, settings, subject=subject), as_json)
        return
    _answer_typed(lm, pair, settings, as_json)


def _answer_typed(lm: str, pair: str, settings: "Settings", as_json: bool) -> None:
    """Answer the questions that a person types or a pipe gives.

    Exits with 1 if one of them failed.
    """
    from pipelines.answering.session import Session

    session = Session()
    failed = False
    for question in terminal.questions():
        try:
            answer = _answer(question, lm, pair, settings, session=session)
        except LongtailError as error:
            failed = True
            print(f"error: {terminal.as_called(str(error))}", file=sys.stderr)
        else:
            _show_answer(answer, as_json)
    if failed:
        raise SystemExit(1)


def _answer(
    question: str, lm: str, pair: str, settings: "Settings", **more: Any
) -> "AskedQuestion":
    from pipelines.adaptive import ask

    return ask.ask(_tokenizable(question), lm, pair, settings, data=Path("data"), **more)


def _show_answer(answer: "AskedQuestion", as_json: bool) -> None:
    from pipelines.adaptive.answer_lines import answer_lines

    if as_json:
        print_json(asdict(answer))
    else:
        terminal.show_lines(answer_lines(answer))
    sys.stdout.flush()


def _check_subject(subject: str | None, question: str | None) -> None:
    if subject and question is None:
        raise LongtailError("--subject: is that of one question, expected the question beside it")
    if subject and not re.fullmatch(r"Q\d+", subject):
        raise LongtailError(
            f"--subject {subject}: expected a Wikidata id, a Q and a number, such as Q42"
        )


def _method_of(retriever: str | None, lm: str | None, settings: "Settings") -> str:
    """The retriever's method, which answers below the threshold.

    Without a `retriever` it is the one that answers best with thresholds.
    """
    from pipelines.adaptive import ask

    if retriever is None:
        retriever = ask.best_retriever(lm or settings.lms[0], Path("data"))
    index = index_of(retriever or _first_retriever(settings), settings.retrievers)
    return index.short_name(settings.retrievers)


def open_corpus(corpus: str, retriever: str, k: int) -> "Search":
    """A function from texts to the best k documents of each, with score, id, title and text.

    BM25 finds no document that has no word of a text. Raises LongtailError if the run has no such
    corpus or index.
    """
    from pipelines.retrieval import documents
    from pipelines.retrieval.retriever import RetrievalSettings, matching, open_index

    params = params_file.load_params()
    method = index_of(retriever, params.retrievers)
    if corpus not in params.parts.corpora:
        corpora = ", ".join(params.parts.corpora) or "none; set parts.corpora"
        raise LongtailError(
            f"--corpus {corpus}: this run has no such corpus, expected one of its own: {corpora}"
        )
    settings = params_file.settings_of(params, RetrievalSettings)
    index = open_index(method, corpus, settings)
    docs = Path(f"data/corpus/{corpus}/docs.parquet")

    def find(texts: Sequence[str]) -> "list[list[Passage]]":
        positions, scores = index.search(list(map(_tokenizable, texts)), k)
        if retriever == "bm25":
            positions = matching(positions, scores)
        return documents.read_passages(docs, (positions, scores))

    return find


def index_of(retriever: str, retrievers: list[str]) -> Method:
    """The index of a name. Raises LongtailError for a name of no index."""
    kind = Method.of_name(retriever).kind
    if methods.INDEXES.get(kind) != kind:
        raise LongtailError(
            f"--retriever {retriever}: expected bm25, dense, lsr or hybrid, or as dense_NAME"
        )
    return Method.parse(retriever, retrievers)


def hit_lines(hits: list[dict[str, Any]]) -> Iterator[str]:
    """Yield lines on each hit, no wider than the terminal.

    They are its rank, score, title and id, then how its text begins.
    """
    width = max(LEAST_WIDTH, min(shutil.get_terminal_size().columns, MOST_WIDTH))
    for rank, hit in enumerate(hits, 1):
        head = f"{rank:3}  {hit['score']:8.4f}  "
        title = f"{hit['title'] or '(no title)'}  [{hit['id']}]"
        yield from textwrap.wrap(
            title,
            width,
            max_lines=TEXT_LINES,
            initial_indent=head,
            subsequent_indent=" " * len(head),
        )
        text = textwrap.wrap(hit["text"], width - 5, max_lines=TEXT_LINES, placeholder=" …")
        for line in text:
            yield f"{'':5}{line}"


def _first_retriever(params: Any) -> str:
    """The first retriever, tuned if the run tunes it; BM25 in a run without retrievers."""
    if not params.retrievers:
        return "bm25"
    is_tuned = params.retrievers[0] in params.parts.tuned
    return "lsr" if is_tuned else "dense"


def _tokenizable(text: str) -> str:
    """A text of the command line as valid UTF-8, because no tokenizer takes any other text."""
    return text.encode(errors="replace").decode()
