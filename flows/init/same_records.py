"""Choose among files of a data set that have the same records, so that a run meets each record
once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from filecmp import cmp
from functools import cache
from pathlib import Path

from flows.init.dumps import newest_dump, newest_whole_month, one_wiki, whole_dump
from flows.init.left_out import LeftOut, beside_least, instead
from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.questions.matching import LETTERS
from pipelines.sources.corpus_layouts import DUMP, require_layout
from pipelines.sources.decompression import DECOMPRESSORS
from pipelines.sources.delimited import table_rows
from pipelines.sources.passage_files import QUESTION_PLACES
from pipelines.sources.question_files import first_value, read_records
from pipelines.sources.rejects import Rejects
from pipelines.sources.repeats import table_of
from pipelines.sources.streams import is_parquet, read_head

# What programs add to the name of a copy; a multistream dump has the text of the plain one.
COPY_MARKS = re.compile(r" \(\d+\)| - Copy| copy|-multistream", re.IGNORECASE)
# Folders of configurations that share records, by data set; the first that is there is used.
CONFIGURATIONS = {
    "c4": ("en", "en.noblocklist", "en.noclean", "realnewslike", "multilingual"),
    "wikitext": (
        "wikitext-103-raw-v1",
        "wikitext-103-raw",
        "wikitext-103-v1",
        "wikitext-103",
        "wikitext-2-raw-v1",
        "wikitext-2-raw",
        "wikitext-2-v1",
        "wikitext-2",
    ),
}
SHARE_REPEATED = 0.5  # of a file's questions, from which the file is left out


def choose_files(data_set: str, files: Sequence[Path]) -> tuple[list[Path], list[LeftOut]]:
    """The files of a data set that a run uses together, and the others.

    `data_set` is called as under fetch.files. The files keep their order.
    """
    chosen = list(files)
    left_out: dict[Path, LeftOut] = {}
    name = data_set.partition("/")[0]
    for rule, data_sets in RULES.items():
        if len(chosen) > 1 and name in data_sets:
            for other in rule(data_set, chosen):
                left_out[other.file] = other
            chosen = [file for file in chosen if file not in left_out]

    others = []
    for other in left_out.values():
        used = other.used
        while used in left_out:
            used = left_out[used].used
        others.append(other._replace(used=used))
    return chosen, others


def copies(data_set: str, files: Sequence[Path]) -> list[LeftOut]:
    """Files with the content of another one, whatever their compression."""
    used_by_name: dict[str, list[Path]] = defaultdict(list)
    left_out = []
    for file in sorted(files, key=_copy_preference):
        used = used_by_name[_name_of_content(data_set, file)]
        same = [other for other in used if _is_copy(data_set, file, other)]
        if same:
            left_out.append(LeftOut(file, same[0], _why_copy(file, same[0])))
        else:
            used.append(file)
    return left_out


def _copy_preference(file: Path) -> tuple[bool, bool, int, Path]:
    """Orders copies. Damage shows in a compressed file; of two files the shorter may be cut."""
    is_plain = file.suffix not in DECOMPRESSORS
    return bool(COPY_MARKS.search(file.name)), is_plain, -file.stat().st_size, file


def _name_of_content(data_set: str, file: Path) -> str:
    """What the names of copies share. Tables and dumps of Wikidata may be called anything."""
    if data_set in ("wikidata", "redirects"):
        return ""
    name = COPY_MARKS.sub("", file.name)
    return name.removesuffix(file.suffix) if file.suffix in DECOMPRESSORS else name


def _is_copy(data_set: str, file: Path, other: Path) -> bool:
    """Whether two files, whose names allow it, have the same content."""
    if file.name == other.name:
        has_many_files = catalogue.has_many_files(data_set.partition("/")[0])
        return not has_many_files or cmp(file, other, shallow=False)
    return _has_content_of(file, other)


def _has_content_of(file: Path, other: Path) -> bool:
    """Whether two files have the same content, as the beginning of texts tells."""
    if is_parquet(file) or is_parquet(other):
        return cmp(file, other, shallow=False)
    return read_head(file) == read_head(other)


def _why_copy(file: Path, used: Path) -> str:
    if _has_content_of(file, used):
        return "it has the same content"
    return "one file of this name is read"


def one_table_of_popqa(_: str, files: Sequence[Path]) -> list[LeftOut]:
    """The published file is used, or else the shards of one table."""
    first = min(files, key=lambda file: (file.name != "popQA.tsv", file))
    shards = [file for file in files if table_of(file) == table_of(first)]
    return instead(files, [first, *shards], "one table of PopQA is read")


def one_layout(_: str, files: Sequence[Path]) -> list[LeftOut]:
    """Of Wikipedia, files of one layout are used: passages before dumps, then other articles."""
    layouts = {file: require_layout(file) for file in files}

    def preference(file: Path) -> tuple[bool, bool, Path]:
        return not layouts[file].passages, layouts[file] != DUMP, file

    best = min(files, key=preference)
    used = [file for file in files if layouts[file] == layouts[best]]
    return instead(files, [best, *used], "files of one layout are read")


def one_layout_of_mmlu(_: str, files: Sequence[Path]) -> list[LeftOut]:
    """Of the benchmark's own tables and the Hub's files, those with more questions are used."""
    questions: dict[bool, set[str]] = {True: set(), False: set()}  # of the tables, of the others
    for file in files:
        questions[file.suffix == ".csv"] |= questions_of(file)

    def key(file: Path) -> tuple[int, bool]:
        is_table = file.suffix == ".csv"
        return -len(questions[is_table]), not is_table

    return beside_least(files, key, "files of one layout are read, those with more questions")


def one_configuration(data_set: str, files: Sequence[Path]) -> list[LeftOut]:
    """Of the folders in CONFIGURATIONS, the first that is there is used."""
    places = {name: place for place, name in enumerate(CONFIGURATIONS[data_set])}

    def key(file: Path) -> int | None:
        return places.get(file.parent.name)

    return beside_least(files, key, "another configuration of the same texts")


def repeated_questions(_: str, files: Sequence[Path]) -> list[LeftOut]:
    """Files most of whose questions are in other files, such as all subjects and each subject."""
    files = sorted(files, key=lambda file: (-len(questions_of(file)), file.stat().st_size, file))
    file_of_question: dict[str, Path] = {}
    left_out = []
    for file in files:
        questions = questions_of(file)
        repeated = Counter(file_of_question[text] for text in questions if text in file_of_question)
        if repeated.total() > SHARE_REPEATED * len(questions):
            used = repeated.most_common(1)[0][0]
            share = "all"
            if repeated.total() < len(questions):
                share = f"{repeated.total():,} of {len(questions):,}"
            left_out.append(LeftOut(file, used, f"{share} questions are there too"))
        else:
            file_of_question |= dict.fromkeys(questions, file)
    return left_out


@cache
def questions_of(file: Path) -> frozenset[str]:
    """The distinct questions of a file, without those in lines that can't be read."""
    questions = set()
    rejects = Rejects(1.0)
    with suppress(LongtailError):  # of a damaged file, which the stage names
        if file.suffix == ".csv":
            for _, row, _ in table_rows(file, ",", len(LETTERS) + 2):
                questions.add((row or [""])[0])
            return frozenset(questions)

        columns = [place.partition(".")[0] for place in QUESTION_PLACES]
        for _, record in read_records(file, columns, rejects):
            question = first_value(record, QUESTION_PLACES)
            questions.add(str(question).strip())
    return frozenset(questions)


Rule = Callable[[str, Sequence[Path]], list[LeftOut]]
OF_QUESTIONS = [
    name for name, dataset in catalogue.DATASETS.items() if dataset.many_files or dataset.passages
]
# In this order: a rule, and the data sets that it is for.
RULES: dict[Rule, Collection[str]] = {
    one_table_of_popqa: ["popqa"],
    one_layout: ["wikipedia"],
    one_layout_of_mmlu: ["mmlu"],
    one_wiki: ["wikipedia", "redirects"],
    newest_dump: ["wikidata", "redirects", "wikipedia"],
    copies: catalogue.DATASETS,
    whole_dump: ["wikipedia"],
    newest_whole_month: ["pageviews"],
    one_configuration: CONFIGURATIONS,
    repeated_questions: OF_QUESTIONS,
}
