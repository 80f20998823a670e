"""The best passages for each question of a release, so that others need no index.

passages/<retriever>.jsonl.gz has what the ways of the run find, in a layout that FlashRAG and the
ways `given` read. No document is left out that a language model of the run may have read.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pipelines import methods
from pipelines.catalogue import label
from pipelines.errors import LongtailError
from pipelines.methods import INDEXES, Method
from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.release import contents
from pipelines.release.templating import Facts
from pipelines.retrieval import documents
from pipelines.retrieval.documents import Passage, Retriever
from pipelines.retrieval.passage_layouts import AnsweredQuestion, write_passages
from pipelines.retrieval.retriever import RetrievalSettings, open_index
from pipelines.storage import parquet

FOLDER = "passages"
LAYOUT = "flashrag"
# of texts that others may pass on, as SPDX calls them; the Hub does so in small letters
FREE_LICENCES = ("Apache-2.0", "CC-BY-4.0", "CC-BY-SA-3.0", "CC-BY-SA-4.0", "CC0-1.0", "MIT")


class Passages(NamedTuple):
    """What a release's passages are searched with."""

    k: int  # passages of a question and retriever
    corpus: str
    licence: dict[str, str]  # of the corpus, as a card has it
    retrievers: dict[str, Retriever]  # by the names of the files


def open_retrievers(data: Path, k: int, params: Params, manifest: list[Facts]) -> Passages:
    """Open what the ways of a run search.

    Raises LongtailError where no way retrieves, an index is not there, the corpus has less than `k`
    documents, or its licence does not say that others may pass its texts on.
    """
    ways = methods.of_kinds(params.ways, *INDEXES)
    if not ways:
        raise LongtailError("--passages: no way of this run retrieves; add bm25 or dense to `ways`")
    corpus = str(params.parts.datastore)
    licence = _licence(corpus, manifest)
    settings = params_file.settings_of(params, RetrievalSettings)
    retrievers: dict[str, Retriever] = {}
    for way in ways:
        method = Method.parse(way, params.retrievers)
        searched = Method(INDEXES[method.kind], method.retriever)
        name = searched.short_name(params.retrievers)
        if name not in retrievers:
            retrievers[name] = open_index(searched, corpus, settings, data=data)
        count = retrievers[name].count
        if k > count:
            raise LongtailError(f"--passages {k}: {corpus} has {count:,} documents; ask for fewer")
    return Passages(k, corpus, licence, retrievers)


def _licence(corpus: str, manifest: list[Facts]) -> dict[str, str]:
    """The licence of a corpus, which the manifest has, as a card says it."""
    name = next(file["licence"] for file in manifest if file["dataset"] == corpus)
    spdx = name.partition(" ")[0]
    if spdx not in FREE_LICENCES:
        raise LongtailError(
            f"--passages: the licence of {corpus} ({name}) does not say that others may pass its "
            "texts on; leave the passages out"
        )
    return {
        "id": spdx.lower(),
        "name": name,
        "url": f"https://spdx.org/licenses/{spdx}.html",
        "covers": f"the texts in `{FOLDER}/`, from {label(corpus)}",
    }


def write(data: Path, folder: Path, passages: Passages) -> None:
    """Write a file for each retriever, with the passages of each question of a release's PopQA."""
    columns = ("id", "question", "possible_answers")
    rows = parquet.read_parquet(folder / contents.POPQA.parquet, columns).to_pylist()
    questions = [
        AnsweredQuestion(str(row["id"]), row["question"], row["possible_answers"]) for row in rows
    ]
    docs = data / f"corpus/{passages.corpus}/docs.parquet"
    for name, retriever in passages.retrievers.items():
        file = folder / FOLDER / f"{name}.jsonl.gz"
        write_passages(file, LAYOUT, questions, partial(_search, retriever, docs, passages.k))


def _search(retriever: Retriever, docs: Path, k: int, texts: Sequence[str]) -> list[list[Passage]]:
    return documents.read_passages(docs, retriever.search(texts, k))
