"""Stage `exposure`: in how many documents of a text each question's subject and answer occur, alone
and together.

What a language model could have learnt from that text: an answer's accuracy grows with the
documents that have both (Kandpal et al., 2023). Names count as whole words, exactly as written. All
files at hand are read once and all names are looked for at once, in parts that are mapped over
`compute.workers`. Of a dump of Wikipedia the same pass counts the articles that link to the
subject's (see `wikipedia_links.count_incoming`). Writes data/exposure/<text>/<question set>.parquet
and rejects.parquet.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import catalogue
from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.language import language
from pipelines.language.language import MediaWiki
from pipelines.lm.ragged import Ragged
from pipelines.params.param_types import Section
from pipelines.params.params import Compute, Ingest, Parts
from pipelines.questions.subject_articles import view_subjects
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.mentions import Names
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw, read_wikipedia
from pipelines.sources.streams import source_files
from pipelines.sources.wikipedia import source_parts
from pipelines.sources.wikipedia_links import Links, count_incoming
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code, executors, stage

DATA = Path("data")
OUT = DATA / "exposure"
LINKS = "links.parquet"  # the file of a part's links
COLUMNS = ("question_id", "subj", "s_aliases", "possible_answers")  # of question sets


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    language: str
    compute: Compute
    ingest: Ingest
    parts: Parts


@dataclass(frozen=True)
class NamesAsked:
    """The questions' subjects and answers as sets of names.

    A set counts where one of its names stands.
    """

    ids: np.ndarray  # of the questions, (questions,) str
    files: np.ndarray  # the number of each question's file, (questions,) int64
    subject: np.ndarray  # the number of its subject's set, (questions,) int64
    answer: np.ndarray  # the number of its answers' set, (questions,) int64
    names: Names
    sets: Ragged  # the sets that each name is in
    questions: Ragged  # the questions whose subject's set each set is

    @property
    def n_sets(self) -> int:
        """The number of sets."""
        return len(self.questions.lengths)


def count_exposure(settings: Settings, name: str, data: Path = DATA) -> dict[str, int]:
    """Write <data>/exposure/<name> for the text `name`; return counts.

    Raises LongtailError on damaged files.
    """
    datasets = settings.parts.answered
    questions = data / "questions"
    files = tuple(questions / dataset / f"{dataset}.parquet" for dataset in datasets)
    sources = source_files(data / "raw" / name)
    stats = []
    for file in sources:
        stat = file.stat()
        stats.append((str(file), stat.st_size, stat.st_mtime_ns))
    media = language.read_language(settings.language).media
    fingerprint = code.fingerprint("pipelines.studies.exposure")
    depends_on = (catalogue.facts(name), name, media, stats)
    key = content_key(depends_on, fingerprint, *files)
    parts = source_parts(*sources)
    work = partial(count_part, name, key, files, media)
    with executors.processes(settings.compute, len(parts)) as executor:
        folders = WorkStore().parts(f"exposure-{name}", key, parts, work, executor)

    asked = load_names(files)
    rejects = Rejects(settings.ingest.max_reject_share)
    sums = np.zeros(asked.n_sets + len(asked.ids), np.int64)
    for folder in folders:
        rejects.take(Rejects.decoded((folder / "rejects.json").read_bytes(), 1.0))
        sums += np.load(folder / "sums.npy")

    rejects.check()
    of_sets, together = np.split(sums, [asked.n_sets])
    incoming = _count_links(settings, [folder / LINKS for folder in folders], files, data)

    with atomic(data / "exposure" / name) as folder:
        folder.mkdir()
        for number, dataset in enumerate(datasets):
            rows = asked.files == number
            links = pa.nulls(int(rows.sum()), pa.int64())
            if incoming:
                links = incoming[number]
            columns = {
                "question_id": pa.array(asked.ids[rows], pa.string()),
                "subject": of_sets[asked.subject[rows]],
                "answer": of_sets[asked.answer[rows]],
                "together": together[rows],
                "links": links,
            }
            parquet.write_parquet(pa.table(columns), folder / f"{dataset}.parquet")
        rejects.write(folder / "rejects.parquet")

    WorkStore().forget(f"exposure-{name}", key)
    counts = {"questions": len(together), "together": int((together > 0).sum())}
    return counts | rejects.metrics()


def load_names(files: Sequence[Path]) -> NamesAsked:
    """The questions of these question sets' tables: their subjects by all names at hand, answers by
    any right one."""
    ids, file_numbers, subjects, answers = [], [], [], []
    for number, file in enumerate(files):
        columns = [name for name in parquet.schema_of(file).names if name in COLUMNS]
        rows = parquet.read_parquet(file, columns).to_pylist()
        for row in sorted(rows, key=lambda row: row["question_id"]):
            ids.append(row["question_id"])
            file_numbers.append(number)
            aliases = row.get("s_aliases") or ()
            subjects.append(_name_set([row["subj"], *aliases]))
            answers.append(_name_set(row["possible_answers"]))

    name_sets = sorted({*subjects, *answers})
    names = sorted(set(chain.from_iterable(name_sets)))
    set_numbers = {name_set: number for number, name_set in enumerate(name_sets)}
    name_numbers = {name: number for number, name in enumerate(names)}
    memberships = []  # (number of a name, number of a set that it is in)
    for name_set, set_number in set_numbers.items():
        for name in name_set:
            memberships.append((name_numbers[name], set_number))

    pairs = np.array(sorted(memberships), np.int64).reshape(-1, 2)
    names_of_pairs, sets_of_pairs = pairs.T
    subject = np.array([set_numbers[name_set] for name_set in subjects], np.int64)
    answer = np.array([set_numbers[name_set] for name_set in answers], np.int64)
    by_subject = np.argsort(subject, kind="stable")
    return NamesAsked(
        ids=np.array(ids, object),
        files=np.array(file_numbers, np.int64),
        subject=subject,
        answer=answer,
        names=Names(names),
        sets=Ragged(sets_of_pairs, _bounds(names_of_pairs, len(names))),
        questions=Ragged(by_subject, _bounds(subject, len(name_sets))),
    )


def _name_set(names: Iterable[str | None]) -> tuple[str, ...]:
    """The distinct names, sorted, without empty ones."""
    return tuple(sorted(set(filter(None, names))))


def _bounds(keys: np.ndarray, n: int) -> np.ndarray:
    """Where the rows of each key begin and end, sorted by keys from 0 to n - 1: (n + 1,) int64."""
    sizes = np.bincount(keys, minlength=n)
    return np.concatenate([[0], np.cumsum(sizes)])


@lru_cache(maxsize=1)
def _loaded(key: str, files: tuple[Path, ...]) -> NamesAsked:
    """`load_names` once in a process, which counts in many parts."""
    return load_names(files)


def count_part(
    name: str, key: str, files: tuple[Path, ...], media: MediaWiki, part: Part, out: Path
) -> None:
    """Count in the documents of one part of a text's file; write the counts to the folder `out`."""
    rejects = Rejects(1.0)  # bad rows are judged over all parts
    out.mkdir()
    has_links = catalogue.DATASETS[name].links
    opened = closing(Links(out / LINKS)) if has_links else nullcontext()
    with opened as links:
        texts = documents(name, part, rejects, media, links)
        sums = count_texts(_loaded(key, files), texts)
    np.save(out / "sums.npy", np.concatenate(sums))
    (out / "rejects.json").write_bytes(rejects.encoded())


def count_texts(asked: NamesAsked, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """How many of the documents `texts`, which are read once, have each set, and each question's
    two sets together."""
    of_sets = np.zeros(asked.n_sets, np.int64)
    together = np.zeros(len(asked.ids), np.int64)
    n_names = len(asked.sets.lengths)
    n_sets = asked.n_sets
    for text_of_match, name_of_match in asked.names.find(texts):
        # A name counts once in a document, and so does a set.
        text_of_name, names = _distinct_pairs(text_of_match, name_of_match, n_names)
        sets_of_names = asked.sets.take(names)
        text_of_member = np.repeat(text_of_name, sets_of_names.lengths)
        text_of_set, sets = _distinct_pairs(text_of_member, sets_of_names.values, n_sets)
        of_sets += np.bincount(sets, minlength=n_sets)

        questions = asked.questions.take(sets)
        text_of_question = np.repeat(text_of_set, questions.lengths)
        answer_sets = asked.answer[questions.values]
        wanted = _packed(text_of_question, answer_sets, n_sets)
        has_answer = np.isin(wanted, _packed(text_of_set, sets, n_sets))
        together += np.bincount(questions.values[has_answer], minlength=len(together))

    return of_sets, together


def _distinct_pairs(
    texts: np.ndarray, numbers: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs of a text and a number below n, sorted.

    np.unique hashes, which took 20 times as long on such pairs.
    """
    packed = _packed(texts, numbers, n)
    packed.sort()
    is_first = np.diff(packed, prepend=-1) > 0
    return np.divmod(packed[is_first], n)


def _packed(texts: np.ndarray, numbers: np.ndarray, n: int) -> np.ndarray:
    """One number for each pair of a text and a number below n, in the pairs' order."""
    return texts * n + numbers


def documents(
    name: str, part: Part, rejects: Rejects, media: MediaWiki, links: Links | None = None
) -> Iterator[str]:
    """The text of each document of a part, wikitext as a reader sees it, behind its title if it has
    one.

    `media` is as `wikitext_to_text` takes it; `links` takes the links of wikitext.
    """
    documents = read_raw(name, part, rejects)
    if links:
        documents = read_wikipedia(name, part, rejects, links.redirects)
    for raw in documents:
        text = raw.text
        if raw.wikitext:
            if links:
                links.add(raw.title, raw.text)
            try:
                text = wikitext_to_text(raw.text, media)
            except BadWikitext as error:
                rejects.add(raw.file, raw.row, "bad_wikitext", str(error))
                continue
        yield f"{raw.title}\n{text}" if raw.title else text


def _count_links(
    settings: Settings, parts: Sequence[Path], files: Sequence[Path], data: Path
) -> list[pa.Array]:
    """Of each question set the articles that link to each question's subject, null if this is not
    known, ordered by question id.

    Nothing where the text has no wikitext.
    """
    with_links = []
    for part in parts:
        if part.is_file() and parquet.metadata(part).num_rows:
            with_links.append(part)
    if not with_links:
        return []
    entities = data / "knowledge/wikidata/entities.parquet"
    selects = [f"SELECT title FROM asked_{number}" for number in range(len(files))]
    titles = " UNION ".join(selects)
    query = "SELECT links FROM asked_{} LEFT JOIN incoming USING (title) ORDER BY question_id"
    with database.connect(settings.ingest.memory_gb, settings.compute.threads) as db:
        for number, file in enumerate(files):
            view_subjects(db, f"asked_{number}", file, entities)
        db.execute(
            f"CREATE TEMP TABLE titles AS SELECT title FROM ({titles}) WHERE title IS NOT NULL"
        )
        count_incoming(db, with_links)
        links = []
        for number in range(len(files)):
            table = database.read_rows(db, query.format(number))
            links.append(table["links"])
        return links


def main() -> None:
    """Run the stage on the text that the command line names."""
    name = stage.arguments(__doc__, text=catalogue.names("documents")).text
    stage.run(
        f"exposure@{name}",
        Settings,
        lambda settings: count_exposure(settings, name),
        out=str(OUT / name),
        metrics=Path(f"data/metrics/exposure_{name}.json"),
    )


if __name__ == "__main__":
    main()
