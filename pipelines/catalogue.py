"""Every data set that Longtail knows: what it is, its licence, who reads it, and what it is for.

To add one, write its reader or builder and one entry here, and name it in a profile and in data/README.md
(docs/real-data.md has the steps). Functions are named as "module:function", so that a stage loads the code of its own
data set alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module


@dataclass(frozen=True)
class Dataset:
    """One data set. Its files lie in data/raw/<its name>."""

    label: str  # its name in the report
    title: str  # what it is, for the manifest; {language} is the name of the run's
    licence: str  # the licence that its publishers give
    files: str  # the layouts that are read
    documents: str = ""  # corpora: (name, part of a file, rejects) -> sources.source_documents.Raw, one a document
    learn: bool = False  # corpora: models may be trained on it; false for a corpus that only judges them
    links: bool = False  # corpora: its documents may be wikitext, so links between them are counted
    questions: str = ""  # question sets: builds data/questions/<name>/<name>.parquet
    triples: bool = False  # question sets: built from the knowledge triples
    answered: bool = False  # question sets: methods answer it and thresholds are learnt on it
    benchmark: str = ""  # benchmarks: the function that reads its questions and demonstrations
    passages: bool = False  # its questions come with passages, among which retrievers are compared

    @property
    def code(self) -> list[str]:
        """The modules that its functions are in."""
        return [name.partition(":")[0] for name in (self.documents, self.questions, self.benchmark) if name]


_WIKIPEDIA = "`*pages-articles*.xml*.bz2`; or passages or articles in [one of these "
_WIKIPEDIA += "layouts](../docs/real-data.md#layouts-of-passages-and-articles), also `.zst`, `.gz`, `.bz2`"
_RECORDS = "`.jsonl`, `.json` or `.parquet` with a question and its answers; demonstrations come from files in `train/`"

DATASETS = {
    "wikidata": Dataset(
        "Wikidata",
        "Wikidata, JSON dump or query results",
        "CC0-1.0",
        "`*.json`, also `.gz` or `.bz2`, an entity a line",
    ),
    "pageviews": Dataset(
        "page views", "Wikimedia page views, monthly dump", "CC0-1.0", "`pageviews-YYYYMM-*.bz2`, also `.gz` or plain"
    ),
    "redirects": Dataset(
        "redirects",
        "{language} Wikipedia, tables of redirects and pages",
        "CC-BY-SA-4.0 and GFDL",
        "`*-redirect.sql.gz` and `*-page.sql.gz`, as new as Wikidata's dump",
    ),
    "wikipedia": Dataset(
        "Wikipedia",
        "{language} Wikipedia, pages-articles XML dump",
        "CC-BY-SA-4.0 and GFDL",
        _WIKIPEDIA,
        documents="pipelines.sources.source_documents:read_wikipedia",
        links=True,
        learn=True,
    ),
    "pile": Dataset(
        "Pile",
        "The Pile, JSON lines",
        "per subset",
        "`.jsonl` or `.parquet`, also `.zst`, `.gz`, `.bz2`, with `text` and a subset's name where there is one",
        documents="pipelines.sources.source_documents:read_documents",
        learn=True,
    ),
    "c4": Dataset(
        "C4",
        "C4, {language}",
        "ODC-BY-1.0",
        "`.json.gz`, a document a line",
        documents="pipelines.sources.source_documents:read_documents",
    ),
    "entityquestions": Dataset(
        "EntityQuestions",
        "EntityQuestions",
        "MIT",
        "`P*.test.json`, a list a relation, and `relation_query_templates.json`",
        questions="pipelines.questions.entityquestions:build_entityquestions",
        triples=True,
        answered=True,
    ),
    "popqa": Dataset(
        "PopQA",
        "PopQA as published",
        "MIT",
        "`popQA.tsv` or another `.tsv` with the published 17 columns, one file",
        questions="pipelines.questions.popqa:build_popqa",
        triples=True,
        answered=True,
    ),
    "mmlu": Dataset(
        "MMLU",
        "MMLU",
        "MIT",
        "`dev/*.csv` and `test/*.csv`, a file a subject",
        benchmark="pipelines.evaluation.mmlu:read_mmlu",
    ),
    "nq": Dataset(
        "Natural Questions",
        "Natural Questions, open",
        "CC-BY-SA-3.0",
        _RECORDS,
        questions="pipelines.questions.nq:build_nq",
        triples=True,
        benchmark="pipelines.evaluation.task_items:read_open_qa",
    ),
    "triviaqa": Dataset(
        "TriviaQA", "TriviaQA", "Apache-2.0", _RECORDS, benchmark="pipelines.evaluation.task_items:read_open_qa"
    ),
    "wikitext": Dataset(
        "WikiText",
        "WikiText",
        "CC-BY-SA-3.0",
        "`.tokens` or `.txt`, or `.parquet` with a line in each row's `text`",
        documents="pipelines.sources.source_documents:read_wikitext",
    ),
    "retrieval": Dataset(
        "questions with passages",
        "Questions with retrieved passages",
        "MIT (questions), CC-BY-SA-3.0 (Wikipedia's text)",
        "JSON or Parquet in [one of these layouts](../docs/real-data.md#passages-that-another-system-retrieved)",
        passages=True,
    ),
}


def names(use: str) -> list[str]:
    """The data sets that a field of Dataset is set for: names("documents") can be a corpus."""
    return [name for name, dataset in DATASETS.items() if getattr(dataset, use)]


def has_many_files(name: str) -> bool:
    """Whether each file of a data set has records of its own, so that files of one name may lie in several folders."""
    return bool(DATASETS[name].documents or DATASETS[name].benchmark or DATASETS[name].passages)


def function(name: str, use: str) -> Callable:
    """A data set's reader ("documents", "benchmark") or builder ("questions")."""
    module, _, attribute = getattr(DATASETS[name], use).partition(":")
    return getattr(import_module(module), attribute)


def label(name: str) -> str:
    """A data set's name in the report; other names as they are."""
    return DATASETS[name].label if name in DATASETS else name


def facts(name: str) -> Dataset:
    """What of an entry a stage's result may depend on: not the words that only people read."""
    return replace(DATASETS[name], label="", title="", licence="", files="")
