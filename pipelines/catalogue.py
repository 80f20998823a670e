"""Every data set that Longtail knows: what it is, its licence, who reads it, and what it is for.

docs/own-data-sets.md says how to add one. Functions are named as "module:function". So a stage
loads the code of its own data set alone, and a change of that code makes only this data set's
stages run again (work/code.py:of_datasets).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pipelines import yaml_files


@dataclass(frozen=True)
class Protocol:
    """How the questions of a set are asked, and when an answer to them is right."""

    # a solved question in a prompt, with {question} and {answer}; "": as the run's language has it
    question: str = ""
    # a passage before its question, with {passage}; what follows it stands between passages too
    passage: str = "{passage}\n\n"
    # what a question's demonstrations are: one of each other relation, any other questions, or
    # the first of its relation in demonstrations.parquet, which the set's builder writes
    shots: Literal["each_relation", "any", "own"] = "any"
    # the rule of questions/matching.py by which an answer is right; letter: the language model does
    # not write the answer, it is the likeliest letter of the four options
    answer: Literal["substring", "exact", "letter"] = "substring"


@dataclass(frozen=True)
class Dataset:
    """One data set. Its files lie in data/raw/<its name>."""

    label: str  # its name in the report
    title: str  # what it is, for the manifest; {language} is the name of the run's
    licence: str  # the licence that its publishers give
    files: str  # the layouts that are read
    # what a run lacks without it, for the profiles of `longtail init`; "": nothing
    without: str = ""
    # corpora: (name, part of a file, rejects) -> sources.source_documents.Raw, one a document
    documents: str = ""
    # corpora: (name, part of a file, rejects, lines of a text) -> the same, of joined lines
    joined_lines: str = ""
    # corpora: models may be trained on it; false for a corpus that only judges them
    learn: bool = False
    questions: str = ""  # question sets: builds data/questions/<name>/<name>.parquet
    triples: bool = False  # question sets: built from the knowledge triples
    protocol: Protocol = field(default_factory=Protocol)  # question sets
    # each file has records of its own, so that files of one name may lie in several folders
    many_files: bool = False
    passages: bool = False  # its questions come with passages, among which retrievers are compared
    # question sets: what the gate expects beside conf/expectations.yaml, by name, without the table
    expectations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> list[str]:
        """The modules that its functions are in."""
        functions = (self.documents, self.joined_lines, self.questions)
        return [function.partition(":")[0] for function in functions if function]


FILE = Path(__file__).with_name("catalogue.yaml")
_ENTRIES = yaml_files.read(FILE)


def _dataset(protocol: dict[str, Any] | None = None, **entry: Any) -> Dataset:
    return Dataset(protocol=Protocol(**protocol or {}), **entry)


DATASETS = {name: _dataset(**entry) for name, entry in _ENTRIES.items()}


def names(use: str) -> list[str]:
    """The data sets that a field of Dataset is set for: names("documents") can be a corpus."""
    return [name for name, dataset in DATASETS.items() if getattr(dataset, use)]


def with_train_split(question_sets: Sequence[str]) -> list[str]:
    """The question sets that LSR may learn from. Those with demonstrations of their own are for
    testing alone."""
    return [name for name in question_sets if DATASETS[name].protocol.shots != "own"]


def has_many_files(name: str) -> bool:
    """Whether files of one name may lie in several folders of a data set."""
    dataset = DATASETS[name]
    return dataset.many_files or bool(dataset.documents or dataset.passages)


def function(name: str, use: str) -> Callable:
    """A data set's reader ("documents", "joined_lines") or builder ("questions")."""
    module, _, attribute = getattr(DATASETS[name], use).partition(":")
    return getattr(import_module(module), attribute)


def label(name: str) -> str:
    """A data set's name in the report; other names as they are."""
    return DATASETS[name].label if name in DATASETS else name


def facts(name: str) -> Dataset:
    """What of an entry a stage's result may depend on: not words for readers, nor what the gate
    expects.
    """
    return replace(
        DATASETS[name], label="", title="", licence="", files="", without="", expectations={}
    )
