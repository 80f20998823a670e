"""The best passages for each question of a release, so that others need no index.

passages/<retriever>.jsonl.gz has what the ways of the run find, in a layout that FlashRAG and the
ways `given` read. No document is left out that a language model of the run may have read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines import methods
from pipelines.catalogue import DATASETS
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
FREE_LICENCES = {  # by which others may pass texts on: SPDX's id -> the Hub's
    "Apache-2.0": "apache-2.0",
    "CC-BY-4.0": "cc-by-4.0",
    "CC-BY-SA-3.0": "cc-by-sa-3.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
    "CC0-1.0": "cc0-1.0",
    "MIT": "mit",
    "ODC-BY-1.0": "odc-by",
}


@dataclass(frozen=True)
class Passages:
    """What a release's passages are searched with."""

    k: int  # passages of a question and retriever
    corpus: str
    licence: str  # of the corpus, as the manifest has it; it begins with one of FREE_LICENCES
    retrievers: Mapping[str, Retriever]  # by the names of the files

    def licence_facts(self, language_name: str) -> dict[str, str]:
        """What a card says of the licence."""
        spdx = self.licence.partition(" ")[0]
        title = DATASETS[self.corpus].title.format(language=language_name)
        return {
            "id": FREE_LICENCES[spdx],
            "name": self.licence,
            "url": f"https://spdx.org/licenses/{spdx}.html",
            "covers": f"the texts in `{FOLDER}/`, from {title}",
        }


def open_retrievers(data: Path, k: int, params: Params, manifest: list[Facts]) -> Passages:
    """Open what the ways of a run search.

    Raises LongtailError where no way retrieves, an index is not there, the corpus has less than `k`
    documents, or its licence does not say that others may pass its texts on.
    """
    kinds = methods.of_kinds(params.ways, *INDEXES)
    if not kinds:
        raise LongtailError("--passages: no way of this run retrieves; add bm25 or dense to `ways`")
    corpus = str(params.parts.datastore)
    licence = next(file["licence"] for file in manifest if file["dataset"] == corpus)
    if licence.partition(" ")[0] not in FREE_LICENCES:
        raise LongtailError(
            f"--passages: the licence of {corpus} ({licence}) does not say that others may pass "
            "its texts on; leave the passages out"
        )

    settings = params_file.settings_of(params, RetrievalSettings)
    retrievers: dict[str, Retriever] = {}
    for way in kinds:
        method = Method.parse(way, params.retrievers)
        searched = Method(INDEXES[method.kind], method.retriever)
        name = searched.short_name(params.retrievers)
        if name not in retrievers:
            retrievers[name] = open_index(searched, corpus, settings, data=data)
        count = retrievers[name].count
        if k > count:
            raise LongtailError(f"--passages {k}: {corpus} has {count:,} documents; ask for fewer")
    return Passages(k, corpus, licence, retrievers)


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
