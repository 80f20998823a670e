"""What a profile sets: the parts that a folder's data allow, and numbers for the machine.

profile.yaml.j2 is the profile; this module has what depends on the folder and the machine. Which
data sets there are, and what each is for, is said in pipelines/catalogue.yaml.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from flows.init import dumps
from flows.init.model_folders import Encoder, LanguageModel
from pipelines import catalogue
from pipelines.language import language
from pipelines.sources import wikipedia

GIB = 1 << 30
ANSWER_TOKENS = 15  # at most
PASSAGE_TOKENS = 180  # of a passage with its title: more than most have
QUESTION_TOKENS = 30  # of a question with its answer
MOST_QUESTIONS = 20_000  # all of PopQA
FEWEST_QUESTIONS = 200  # that thresholds need
PAPER_SHOTS = 15  # demonstrations, as PopQA's authors show
CPU_SHOTS = 5  # demonstrations without a GPU
MMLU_SHOTS = 5  # demonstrations of MMLU (REPLUG, section 6.2),
MMLU_POSITIONS = 4096  # where a language model reads so many tokens
# Questions times parameters that a core answers by all methods in some two hours, as measured
# with SmolLM2.
PACE = 4e10
MODEL_MEMORY = 0.5  # share of the memory that language models may take
STAND_IN = "dense"  # the sample's retriever, where there is no encoder (conf/config.yaml)
TRIPLES = ("wikidata", "pageviews", "c4")  # what triples are made of


class Machine(NamedTuple):
    cores: int
    memory: int  # bytes
    gpu: bool


class Contents(NamedTuple):
    """What lies in a folder."""

    files: dict[str, list[Path]]  # data set -> its files, as under fetch.files
    lms: list[LanguageModel]  # smallest first
    encoders: list[Encoder]  # the first is used
    unused: list[tuple[Path, str]]  # a file or folder, and why it is not used


@dataclass
class Parts:
    """The section `parts` of a profile."""

    knowledge: list[str] = field(default_factory=list)
    question_sets: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    corpora: list[str] = field(default_factory=list)
    datastore: str | None = None
    scored: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    given_passages: list[str] = field(default_factory=list)
    tokenizers: list[str] = field(default_factory=list)
    tuned: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)


@dataclass
class Choices:
    """What the template asks for."""

    machine: Machine
    data_sets: list[str]  # that are fetched
    set_aside: dict[str, str]  # data set -> why it is not fetched
    parts: Parts
    uses_lms: bool
    retrievers: list[str]  # none: BM25 alone
    encoder: Encoder | None
    lms: list[LanguageModel]
    language: str  # of the Wikipedia and the questions made of it; "" if it is English
    month: str  # of page views; "" if no name tells it
    workers: int  # processes at once

    @property
    def threads(self) -> int:
        """Threads of each process."""
        return max(1, self.machine.cores // self.workers)

    @property
    def memory_gb(self) -> float:
        return max(1.0, float(self.machine.memory // GIB // 4))

    @property
    def positions(self) -> int:
        """The tokens that the shortest language model reads at once."""
        return min((lm.positions for lm in self.lms), default=0)

    @property
    def most_shots(self) -> int:
        return PAPER_SHOTS if self.machine.gpu else CPU_SHOTS

    @property
    def n_shots(self) -> int:
        """The demonstrations, each with a passage, that fit beside a question with a passage."""
        remaining = self.positions - ANSWER_TOKENS - PASSAGE_TOKENS - QUESTION_TOKENS
        fitting = remaining // (PASSAGE_TOKENS + QUESTION_TOKENS)
        return max(0, min(fitting, self.most_shots))

    @property
    def max_questions(self) -> int:
        """The questions, in hundreds, that these models answer in some two hours; all on a GPU."""
        if self.machine.gpu:
            return MOST_QUESTIONS
        parameters = max(1, sum(lm.parameters for lm in self.lms))
        in_time = int(PACE * self.machine.cores / parameters) // 100 * 100
        return max(FEWEST_QUESTIONS, min(MOST_QUESTIONS, in_time))

    @property
    def answering(self) -> bool:
        return self.uses_lms and bool(self.parts.answered)

    @property
    def learnt(self) -> str:
        """What LSR learns from."""
        if self.parts.answered and self.parts.scored:
            return "mixed"
        return "qa" if self.parts.answered else "lm"

    @property
    def shots_of_sets(self) -> dict[str, dict[str, int]]:
        """Of question sets with demonstrations of their own: how many are shown."""
        sets = {}
        for name in self.parts.answered:
            if catalogue.DATASETS[name].protocol.shots == "own":
                fit = self.positions >= MMLU_POSITIONS and "mmlu/dev" in self.data_sets
                sets[name] = {"n_shots": MMLU_SHOTS if fit and name == "mmlu" else 0}
        return sets


def this_machine() -> Machine:
    import torch

    memory = psutil.virtual_memory().total
    return Machine(os.cpu_count() or 1, memory, torch.cuda.is_available())


def choose(contents: Contents, machine: Machine, *, lsr: bool = False) -> Choices:
    """What a profile for these contents sets here; with `lsr`, it tunes the retriever."""
    files = contents.files
    encoder = contents.encoders[0] if contents.encoders else None
    retriever = encoder.name if encoder else STAND_IN
    lms = contents.lms
    set_aside: dict[str, str] = {}
    parts = _choose_parts(files, bool(lms and encoder), set_aside)
    if lsr and parts.corpora:
        parts.tuned = [retriever]

    given = "retrieval" in files and "popqa" in parts.answered and bool(lms) and not parts.corpora
    if given:
        parts.tokenizers = ["documents"]
        parts.given_passages = ["retrieval"]
        set_aside.pop("retrieval", None)
    asked_for = parts.answered or parts.scored
    uses_lms = given or bool(parts.corpora and asked_for)
    if not uses_lms:
        parts.tuned = []
    data_sets = _used_data_sets(files, parts)
    for key in files:
        if key not in data_sets:
            set_aside.setdefault(key, "nothing in this run needs it")

    retrievers = []
    if parts.corpora and (encoder or uses_lms):
        retrievers = [retriever]
    month = ""
    if parts.knowledge:
        month = next(iter(dumps.files_by_month(files["pageviews"])), "")

    are_made = set(parts.question_sets) <= {"popqa"} and "popqa" not in files  # others are English
    run_language = ""
    if "wikipedia" in data_sets and are_made:
        code = wikipedia.language_of(files["wikipedia"][0])
        if code in language.codes() and code != "en":
            run_language = code
    return Choices(
        machine=machine,
        data_sets=data_sets,
        set_aside=set_aside,
        parts=parts,
        uses_lms=uses_lms,
        retrievers=retrievers,
        encoder=encoder,
        lms=lms,
        language=run_language,
        month=month,
        workers=_count_workers(machine, lms if uses_lms else []),
    )


def _choose_parts(
    files: dict[str, list[Path]], has_models: bool, set_aside: dict[str, str]
) -> Parts:
    """The section `parts`; data sets that can't be used are added to `set_aside`, with why.

    `has_models` says that no model has to be trained.
    """
    parts = Parts()
    lacking = [key for key in TRIPLES if key not in files]
    if not lacking:
        parts.knowledge = ["wikidata"]
    for key in TRIPLES:
        if lacking and key in files:
            set_aside[key] = f"triples need {' and '.join(lacking)} too"

    _choose_questions(files, parts, set_aside)
    _choose_corpora(files, has_models, parts, set_aside)
    _choose_passages(files, parts, set_aside)
    return parts


def _choose_questions(
    files: dict[str, list[Path]], parts: Parts, set_aside: dict[str, str]
) -> None:
    """PopQA comes first: published, or else made of the knowledge."""
    if "popqa" in files or parts.knowledge:
        parts.answered = ["popqa"]
    for name in catalogue.names("questions"):
        if name == "popqa" or not {name, f"{name}/test"} & files.keys():
            continue
        if catalogue.DATASETS[name].triples and not parts.knowledge:
            set_aside[name] = "its subjects are linked to Wikidata: needs wikidata, pageviews, c4"
        else:
            parts.answered.append(name)

    parts.question_sets = list(parts.answered)
    if "popqa" in parts.answered or parts.knowledge:
        parts.rules = ["popularity"]


def _choose_corpora(
    files: dict[str, list[Path]], has_models: bool, parts: Parts, set_aside: dict[str, str]
) -> None:
    """Models may learn from all corpora but WikiText, which only judges them."""
    parts.corpora = [name for name in catalogue.names("learn") if name in files]
    if parts.corpora:
        parts.datastore = parts.corpora[0]
    if "wikitext" in files:
        reason = _why_no_wikitext(files["wikitext"], has_models or bool(parts.corpora))
        if reason:
            set_aside["wikitext"] = reason
        else:
            parts.corpora.append("wikitext")

    if parts.corpora:
        parts.tokenizers = ["documents"]
    parts.scored = [name for name in parts.corpora if name != "wikipedia"]


def _why_no_wikitext(files: list[Path], has_models: bool) -> str:
    """Why WikiText can't be a corpus; "" if it can."""
    n_queries = sum("test" in file.name for file in files)
    if n_queries in (0, len(files)):
        return "it takes a file named test, with articles as queries, and another to retrieve from"
    if not has_models:
        return "it needs a language model and an encoder, since none are trained on it"
    return ""


def _choose_passages(files: dict[str, list[Path]], parts: Parts, set_aside: dict[str, str]) -> None:
    """Questions with passages need a corpus to retrieve from."""
    names = [name for name in catalogue.names("passages") if name in files]
    if parts.datastore:
        parts.passages = names
        return
    for name in names:
        set_aside[name] = "needs passages to answer from (wikipedia or pile)"


def _used_data_sets(files: dict[str, list[Path]], parts: Parts) -> list[str]:
    names = {*parts.question_sets, *parts.corpora, *parts.passages, *parts.given_passages}
    if parts.knowledge:
        names |= {*TRIPLES, "redirects"}
    return [key for key in files if key.partition("/")[0] in names]


def _count_workers(machine: Machine, lms: list[LanguageModel]) -> int:
    """As many processes as language models fit into memory; other cores become their threads."""
    largest = max((4 * lm.parameters for lm in lms), default=0)  # bytes in fp32
    fitting = int(MODEL_MEMORY * machine.memory // (largest + GIB))
    return max(1, min(machine.cores, fitting))
