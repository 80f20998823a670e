"""Stage `exposure`: in how many documents of a text each question's subject and answer occur, alone and together.

What a language model could have learnt from that text: an answer's accuracy grows with the documents that have both
(Kandpal et al., 2023). Names count as whole words, exactly as written. All files at hand are read once
and all names are looked for at once, in parts that are mapped over `compute.workers`. Of a dump of Wikipedia the same
pass counts the articles that link to the subject's (see `wikipedia_links.count_incoming`).
Writes data/exposure/<text>/<question set>.parquet and rejects.parquet.
"""

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
from pipelines.questions.subject_articles import view_subjects
from pipelines.sources.mentions import Names
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.streams import source_files
from pipelines.sources.wikipedia import Part, wikipedia_parts
from pipelines.sources.wikipedia_links import Links, count_incoming
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import forget_shards, key_of, map_shards
from pipelines.work import code, executors, stage

DATA = Path("data")
OUT = DATA / "exposure"
LINKS = "links.parquet"  # the file of a part's links


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


def load_names(files: Sequence[Path]) -> NamesAsked:
    """The questions of these question sets' tables: their subjects by all names at hand, answers by any right one."""
    rows = []
    for number, file in enumerate(files):
        wanted = {"question_id", "subj", "s_aliases", "possible_answers"}
        columns = [name for name in parquet.schema_of(file).names if name in wanted]
        for row in sorted(
            parquet.read_parquet(file, columns).to_pylist(), key=lambda row: row["question_id"]
        ):
            subject, answers = [row["subj"], *(row.get("s_aliases") or ())], row["possible_answers"]
            rows.append(
                (
                    row["question_id"],
                    number,
                    *(tuple(sorted({*of} - {None, ""})) for of in (subject, answers)),
                )
            )
    sets = {
        names: number
        for number, names in enumerate(sorted({names for row in rows for names in row[2:]}))
    }
    names = sorted({name for of_set in sets for name in of_set})
    places = {name: place for place, name in enumerate(names)}
    members = sorted((places[name], number) for of_set, number in sets.items() for name in of_set)
    place, member = np.array(members, np.int64).reshape(-1, 2).T
    subject, answer = (np.array([sets[row[side]] for row in rows], np.int64) for side in (2, 3))
    return NamesAsked(
        np.array([row[0] for row in rows], object),
        np.array([row[1] for row in rows], np.int64),
        subject,
        answer,
        Names(names),
        Ragged(member, _bounds(place, len(names))),
        Ragged(np.argsort(subject, kind="stable"), _bounds(subject, len(sets))),
        len(sets),
    )


def _bounds(keys: np.ndarray, n: int) -> np.ndarray:
    """Where the rows of each key begin and end, sorted by keys from 0 to n - 1: (n + 1,) int64."""
    return np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n))])


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted. (np.unique hashes, which took 20 times as long on keys like these.)"""
    values.sort()
    return values[np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]]


def count_texts(asked: NamesAsked, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """How many of the documents `texts`, which are read once, have each set, and each question's two sets together."""
    of_sets, together = np.zeros(asked.n_sets, np.int64), np.zeros(len(asked.ids), np.int64)
    n_names = len(asked.sets.bounds) - 1
    for text, name in asked.names.find(texts):
        text, name = np.divmod(
            _distinct(text * n_names + name), n_names
        )  # each name once in each document
        sets = asked.sets.take(name)
        there = _distinct(
            np.repeat(text, sets.lengths) * asked.n_sets + sets.values
        )  # (document, set)
        of_sets += np.bincount(there % asked.n_sets, minlength=asked.n_sets)
        questions = asked.questions.take(there % asked.n_sets)
        document = np.repeat(there // asked.n_sets, questions.lengths)
        both = np.isin(document * asked.n_sets + asked.answer[questions.values], there)
        together += np.bincount(questions.values[both], minlength=len(together))
    return of_sets, together


_loaded = lru_cache(maxsize=1)(lambda key, files: load_names(files))  # a process has many parts


def count_part(
    name: str, key: str, files: tuple[Path, ...], media: str, part: Part, out: Path
) -> None:
    """Count in the documents of one part of a text's file; write what was counted to the folder `out`."""
    rejects = Rejects(1.0)  # bad rows are judged over all parts
    out.mkdir()
    with closing(Links(out / LINKS)) if catalogue.DATASETS[name].links else nullcontext() as links:
        sums = count_texts(_loaded(key, files), documents(name, part, rejects, media, links))
    np.save(out / "sums.npy", np.concatenate(sums))
    (out / "rejects.json").write_bytes(rejects.encoded())


def documents(
    name: str, part: Part, rejects: Rejects, media: str, links: Links | None = None
) -> Iterator[str]:
    """The text of each document of a part, wikitext as a reader sees it, behind its title if it has one.

    `media` is as `wikitext_to_text` takes it; `links` takes the links of wikitext.
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


def count_exposure(params: SimpleNamespace, name: str, data: Path = DATA) -> dict[str, int]:
    """Write <data>/exposure/<name> for the text `name`; return counts. Raises LongtailError on damaged files."""
    files = tuple(
        data / f"questions/{dataset}/{dataset}.parquet" for dataset in params.parts.answered
    )
    sources = source_files(data / "raw" / name)
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sources]
    media = language.read_language(params.language).media
    running = code.fingerprint("pipelines.studies.exposure")
    key = key_of(running, catalogue.facts(name), name, media, stats, *files)
    pieces = [part for file in sources for part in wikipedia_parts(file)]
    work = partial(count_part, name, key, files, media)
    with executors.processes(params.compute, len(pieces)) as executor:
        done = map_shards(f"exposure-{name}", key, work, pieces, executor)
    asked, rejects = load_names(files), Rejects(params.ingest.max_reject_share)
    for folder in done:
        rejects.take(Rejects.decoded((folder / "rejects.json").read_bytes(), 1.0))
    rejects.check()
    nothing = np.zeros(asked.n_sets + len(asked.ids), np.int64)
    sets, both = np.split(
        sum((np.load(folder / "sums.npy") for folder in done), start=nothing), [asked.n_sets]
    )
    incoming = _incoming(params, [folder / LINKS for folder in done], files, data)
    with atomic(data / "exposure" / name) as folder:
        folder.mkdir()
        for number, dataset in enumerate(params.parts.answered):
            rows = asked.of == number
            columns = {
                "subject": sets[asked.subject],
                "answer": sets[asked.answer],
                "together": both,
            }
            table = {"question_id": pa.array(asked.ids[rows], pa.string())}
            table |= {column: values[rows] for column, values in columns.items()}
            table["links"] = incoming[number] if incoming else pa.nulls(int(rows.sum()), pa.int64())
            parquet.write_parquet(pa.table(table), folder / f"{dataset}.parquet")
        rejects.write(folder / "rejects.parquet")
    forget_shards(f"exposure-{name}", key)
    return {"questions": len(both), "together": int((both > 0).sum())} | rejects.metrics()


def _incoming(
    params: SimpleNamespace, parts: list[Path], files: Sequence[Path], data: Path
) -> list[pa.Array]:
    """Of each question set the articles that link to each question's subject, null if unknown, ordered by question id.

    Nothing where the text has no wikitext.
    """
    if not (
        parts := [part for part in parts if part.is_file() and parquet.metadata(part).num_rows]
    ):
        return []
    with database.connect(params.ingest.memory_gb, params.compute.threads) as db:
        for number, file in enumerate(files):
            view_subjects(db, f"asked_{number}", file, data / "knowledge/wikidata/entities.parquet")
        asked = " UNION ".join(f"SELECT title FROM asked_{number}" for number in range(len(files)))
        db.execute(
            f"CREATE TEMP TABLE titles AS SELECT title FROM ({asked}) WHERE title IS NOT NULL"
        )
        count_incoming(db, parts)
        query = "SELECT links FROM asked_{} LEFT JOIN incoming USING (title) ORDER BY question_id"
        return [
            database.read_rows(db, query.format(number))["links"] for number in range(len(files))
        ]


if __name__ == "__main__":
    name = stage.arguments(__doc__, text=catalogue.names("documents")).text
    stage.run(
        f"exposure@{name}",
        ("language", "compute", "ingest", "parts"),
        lambda params: count_exposure(params, name),
        out=str(OUT / name),
        metrics=Path(f"data/metrics/exposure_{name}.json"),
    )
