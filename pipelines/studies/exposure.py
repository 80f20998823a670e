"""Stage `exposure`: in how many documents of a text each question's subject and answer occur, alone and together.

What a language model could have learnt from that text: an answer's accuracy grows with the documents that have both
(Kandpal et al., 2023). Names count as whole words, exactly as written. All files at hand are read once
and all names are looked for at once, in parts that are mapped over `compute.workers`. Of a dump of Wikipedia the same
pass counts the articles that link to the subject's (see `wikilinks`).
Writes data/exposure/<text>/<question set>.parquet and rejects.parquet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import catalogue
from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.language import language
from pipelines.lm.ragged import Ragged
from pipelines.questions import subject_articles
from pipelines.sources.mentions import Names
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.streams import source_files
from pipelines.sources.wikilinks import Links, count_incoming
from pipelines.sources.wikipedia import Part, wikipedia_parts
from pipelines.storage import database, parquet, shards
from pipelines.work import code, pool, stage

RAW = Path("data/raw")
QUESTIONS = Path("data/questions")
OUT = Path("data/exposure")
LINKS = "links.parquet"  # of a part


class NamesAsked(NamedTuple):
    """The questions' subjects and answers as sets of names; a set counts where one of its names stands."""

    ids: np.ndarray  # of the questions, (questions,) str
    of: np.ndarray  # the number of each question's file, (questions,) int64
    subject: np.ndarray  # the number of its subject's set, (questions,) int64
    answer: np.ndarray  # the number of its answers' set, (questions,) int64
    names: Names
    sets: Ragged  # the sets that each name is in
    questions: Ragged  # the questions that are about each set
    n_sets: int


class Counts:
    """Documents that have each set (`sets`), and each question's two sets together (`both`); documents and bytes."""

    def __init__(self, asked: NamesAsked) -> None:
        self.sets = np.zeros(asked.n_sets, np.int64)
        self.both = np.zeros(len(asked.ids), np.int64)
        self.read = np.zeros(2, np.int64)  # documents, bytes

    def add(self, asked: NamesAsked, texts: Iterable[str]) -> None:
        """Count the documents `texts`, which are read once."""
        for text, name in asked.names.find(self._measured(texts)):
            n_names = len(asked.sets.bounds) - 1
            text, name = np.divmod(_distinct(text * n_names + name), n_names)  # each name once in each document
            sets = asked.sets.take(name)
            there = _distinct(np.repeat(text, sets.lengths) * asked.n_sets + sets.values)  # (document, set)
            self.sets += np.bincount(there % asked.n_sets, minlength=asked.n_sets)
            questions = asked.questions.take(there % asked.n_sets)
            document = np.repeat(there // asked.n_sets, questions.lengths)
            together = np.isin(document * asked.n_sets + asked.answer[questions.values], there)
            self.both += np.bincount(questions.values[together], minlength=len(self.both))

    def _measured(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            self.read += 1, len(text.encode())
            yield text


def load_names(files: Sequence[Path]) -> NamesAsked:
    """The questions of these question sets' tables: their subjects by all names at hand, answers by any right one."""
    with database.connect(1.0, 1) as db:
        rows = []
        for number, file in enumerate(files):
            columns = parquet.schema_of(file).names
            aliases = "s_aliases" if "s_aliases" in columns else "[]"
            database.view(db, f"set_{number}", file)
            rows.append(
                f"""SELECT {number} AS file, question_id, list_prepend(subj, {aliases}) AS subject,
                    possible_answers AS answer FROM set_{number}"""
            )
        clean = "list_sort(list_distinct(list_filter({}, lambda name: name != '')))"
        db.execute(
            f"""CREATE TEMP TABLE asked AS SELECT file, question_id, {clean.format("subject")} AS subject,
                {clean.format("answer")} AS answer FROM ({" UNION ALL ".join(rows)})"""
        )
        db.execute(
            """CREATE TEMP TABLE sets AS SELECT names, row_number() OVER (ORDER BY names) - 1 AS set
            FROM (SELECT subject AS names FROM asked UNION SELECT answer FROM asked)"""
        )
        db.execute(
            """CREATE TEMP TABLE names AS SELECT name, row_number() OVER (ORDER BY name) - 1 AS number
            FROM (SELECT DISTINCT unnest(names) AS name FROM sets)"""
        )
        asked = db.sql(
            """SELECT question_id, file, s.set AS subject, a.set AS answer FROM asked
            JOIN sets AS s ON subject = s.names JOIN sets AS a ON answer = a.names ORDER BY file, question_id"""
        ).fetchnumpy()
        names = database.read_rows(db, "SELECT name FROM names ORDER BY number")["name"].to_pylist()
        members = db.sql(
            """SELECT number, set FROM (SELECT set, unnest(names) AS name FROM sets) JOIN names USING (name)
            ORDER BY number, set"""
        ).fetchnumpy()
        (n_sets,) = database.row(db, "SELECT count(*) FROM sets")
    subject = asked["subject"]
    return NamesAsked(
        *(asked["question_id"], asked["file"], subject, asked["answer"], Names(names)),
        Ragged(members["set"], _bounds(members["number"], len(names))),
        Ragged(np.argsort(subject, kind="stable"), _bounds(subject, n_sets)),
        n_sets,
    )


def _bounds(keys: np.ndarray, n: int) -> np.ndarray:
    """Where the rows of each key begin and end, sorted by keys from 0 to n - 1: (n + 1,) int64."""
    return np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n))])


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted. (np.unique hashes, which took 20 times as long on keys like these.)"""
    values.sort()
    return values[np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]]


_loaded = lru_cache(maxsize=1)(lambda key, files: load_names(files))  # a process has many parts


def count_part(name: str, key: str, files: tuple[Path, ...], media: str, part: Part, out: Path) -> None:
    """Count in the documents of one part of a text's file; write what was counted to the folder `out`."""
    asked, rejects = _loaded(key, files), Rejects(1.0)  # bad rows are judged over all parts
    counts = Counts(asked)
    out.mkdir()
    with closing(Links(out / LINKS)) if catalogue.DATASETS[name].links else nullcontext() as links:
        counts.add(asked, documents(name, part, rejects, media, links))
    np.save(out / "sums.npy", np.concatenate([counts.read, counts.sets, counts.both]))
    (out / "rejects.json").write_bytes(rejects.encoded())


def documents(name: str, part: Part, rejects: Rejects, media: str, links: Links | None = None) -> Iterator[str]:
    """The text of each document of a part, wikitext as a reader sees it, behind its title if it has one.

    `media` is what links to files and categories begin with, as `wikitext_to_text` takes it. `links` takes those of
    wikitext.
    """
    for raw in read_raw(name, part, rejects, links and links.redirects):
        if links and raw.wikitext:
            links.add(raw.title, raw.text)
        try:
            text = wikitext_to_text(raw.text, media) if raw.wikitext else raw.text
        except BadWikitext as error:
            rejects.add(raw.file, raw.row, "bad_wikitext", str(error))
            continue
        yield f"{raw.title}\n{text}" if raw.title else text


def count_exposure(
    params: SimpleNamespace,
    name: str,
    raw: Path = RAW,
    questions: Path = QUESTIONS,
    out: Path = OUT,
    entities: Path = subject_articles.ENTITIES,
) -> dict[str, int]:
    """Write the folder `out`/<name> for the text `name`; return counts. Raises LongtailError on damaged files."""
    ingest = params.ingest
    files = tuple(questions / dataset / f"{dataset}.parquet" for dataset in params.parts.answered)
    sources = source_files(raw / name)
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sources]
    running = code.fingerprint("pipelines.studies.exposure")
    media = language.read_language(params.language).media
    key = shards.key_of(running, catalogue.facts(name), name, media, stats, *files)
    pieces = [part for file in sources for part in wikipedia_parts(file)]
    work = partial(count_part, name, key, files, media)
    with pool.processes(params.compute, len(pieces)) as executor:
        done = shards.map_shards(f"exposure-{name}", key, work, pieces, executor)
    asked, rejects = load_names(files), Rejects(ingest.max_reject_share)
    total = np.zeros(2 + asked.n_sets + len(asked.ids), np.int64)
    for folder in done:
        total += np.load(folder / "sums.npy")
        of_part = Rejects.decoded((folder / "rejects.json").read_bytes(), 1.0)
        rejects.take(of_part)
    rejects.check()
    incoming = _incoming(params, [folder / LINKS for folder in done], files, entities)
    (n_documents, size), sets, both = np.split(total, [2, 2 + asked.n_sets])
    with shards.atomic(out / name) as folder:
        folder.mkdir()
        for number, dataset in enumerate(params.parts.answered):
            rows = asked.of == number
            columns = {"subject": sets[asked.subject], "answer": sets[asked.answer], "together": both}
            table = {"question_id": pa.array(asked.ids[rows], pa.string())}
            table |= {column: values[rows] for column, values in columns.items()}
            table["links"] = incoming[number] if incoming else pa.nulls(int(rows.sum()), pa.int64())
            parquet.write_parquet(pa.table(table), folder / f"{dataset}.parquet")
        rejects.write(folder / "rejects.parquet")
    shards.forget_shards(f"exposure-{name}", key)
    counts = {
        "documents": int(n_documents),
        "bytes": int(size),
        "questions": len(both),
        "together": int((both > 0).sum()),
    }
    return counts | rejects.metrics()


def _incoming(params: SimpleNamespace, parts: list[Path], files: Sequence[Path], entities: Path) -> list[pa.Array]:
    """Of each question set the articles that link to each question's subject, null if unknown, ordered by question id.

    Nothing where the text has no wikitext.
    """
    if not (parts := [part for part in parts if part.is_file() and parquet.metadata(part).num_rows]):
        return []
    with database.connect(params.ingest.memory_gb, params.compute.threads) as db:
        for number, file in enumerate(files):
            subject_articles.view_subjects(db, f"asked_{number}", file, entities)
        asked = " UNION ".join(f"SELECT title FROM asked_{number}" for number in range(len(files)))
        db.execute(f"CREATE TEMP TABLE titles AS SELECT title FROM ({asked}) WHERE title IS NOT NULL")
        count_incoming(db, parts)
        query = "SELECT links FROM asked_{} LEFT JOIN incoming USING (title) ORDER BY question_id"
        return [database.read_rows(db, query.format(number))["links"] for number in range(len(files))]


def main() -> None:
    name = stage.arguments(__doc__, text=catalogue.names("documents")).text
    stage.run(
        f"exposure@{name}",
        ("language", "compute", "ingest", "parts"),
        lambda params: count_exposure(params, name),
        out=str(OUT / name),
        metrics=Path(f"data/metrics/exposure_{name}.json"),
    )


if __name__ == "__main__":
    main()
