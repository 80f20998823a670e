"""Read a corpus's source documents in batches, and find those that occur more than once (REPLUG,
section 5).

A document's split and its key are hashes of its id, so they do not depend on files or processes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from duckdb import DuckDBPyConnection

from pipelines import catalogue, draws
from pipelines.errors import LongtailError
from pipelines.language.language import MediaWiki
from pipelines.params.params import Chunk, Corpus, Queries, Windows
from pipelines.sources.batches import in_batches
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.raw_files import day_of
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import Raw, read_raw
from pipelines.storage import database, parquet
from pipelines.storage.atomic import write_json
from pipelines.tables.table import BOOL, FLOAT64, INT64, STRING

# of documents with one id; the newest comes first
ORDER = "split = 'corpus', day DESC, source, title, hash(text), file, row"
BATCH = pa.schema(
    {
        "source_document": STRING,
        "source": STRING,
        "title": STRING,
        "text": STRING,
        "file": STRING,
        "row": INT64,
        "page": STRING,
        "day": STRING,  # YYYY-MM-DD in the name of the file or its folder, or ""
        "wikitext": BOOL,
        "whole": BOOL,
        "split": STRING,
        "key": FLOAT64,
    }
)
Place = tuple[str, int]  # file and row of a source document


@dataclass(frozen=True)
class CorpusSettings:
    """What decides how one corpus is sampled and cut. Worker processes get it pickled."""

    name: str
    tokenizer: Path
    seed: int
    corpus: Corpus
    chunk: Chunk
    queries: Queries
    windows: Windows
    media: MediaWiki


class Batch(NamedTuple):
    """A file of source documents."""

    path: Path
    # documents whose id is another's: a new id, or None for a copy, which is left out
    repeated: Mapping[Place, str | None]


def split_of(settings: CorpusSettings, source_document: str, file: str) -> str:
    """The split of a source document, one of near_duplicates.SPLITS: a hash of (seed, document id)
    decides.

    Documents in the files of a published test or validation split have that split, and no others
    have it.
    """
    corpus = settings.corpus
    published = {"test": corpus.test_files, "validation": corpus.validation_files}
    for split, glob in published.items():
        if glob is not None and fnmatchcase(file, glob):
            return split
    if draws.uniform(settings.seed, "query source", source_document) >= corpus.query_share:
        return "corpus"

    shares = {
        "test": settings.queries.test_share,
        "validation": settings.queries.validation_share,
    }
    u = draws.uniform(settings.seed, "query split", source_document)
    for split, share in shares.items():
        if published[split] is None:
            if u < share:
                return split
            u -= share
    return "train"


def read_part(
    settings: CorpusSettings,
    max_reject_share: float,
    batch_bytes: int,
    share: float,
    part: Part,
    out: Path,
) -> None:
    """Write a `share` of a part's documents to the folder `out`, in files of `batch_bytes`; also
    rejects and read.json.

    Documents that give queries are all read: their key is 0.
    """
    out.mkdir()
    rejects = Rejects(max_reject_share)
    rows = _drawn_rows(settings, share, part, rejects)
    for number, batch in enumerate(in_batches(rows, _bytes_of_text, batch_bytes)):
        write_rows(batch, BATCH, out / f"{number:06d}.parquet")
    rejects.write(out / "rejects.parquet")
    write_json(out / "read.json", {"read": rejects.read, "skipped": rejects.skipped})


def _drawn_rows(
    settings: CorpusSettings, share: float, part: Part, rejects: Rejects
) -> Iterator[dict]:
    """Yield rows of BATCH: the part's documents whose key is up to `share`."""
    day = day_of(part.file.as_posix()) or ""
    for document in _read_documents(settings, part, rejects):
        if document.whole and settings.corpus.has_queries:
            raise LongtailError(
                f"params.yaml: corpus.{settings.name} asks for queries, expected query_share 0, "
                f"test_files null and validation_files null: {part.file} holds passages, and "
                "others of a query's page would be in the corpus"
            )
        split = split_of(settings, document.source_document, document.file)
        key = 0.0
        if split == "corpus":
            key = draws.uniform(settings.seed, "corpus", document.source_document)
        if key <= share:
            yield document._asdict() | {"day": day, "split": split, "key": key}


def _read_documents(settings: CorpusSettings, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """The documents of a part, or texts of `corpus.test_lines` lines of a published test split."""
    corpus = settings.corpus
    is_joined = corpus.test_lines and fnmatchcase(part.file.name, corpus.test_files or "")
    if not is_joined:
        return read_raw(settings.name, part, rejects)
    read_joined_lines = catalogue.function(settings.name, "joined_lines")
    return read_joined_lines(settings.name, part, rejects, corpus.test_lines)


def _bytes_of_text(row: dict) -> int:
    return len(row["text"].encode("utf-8"))


def write_rows(rows: list[dict], schema: pa.Schema, path: Path) -> None:
    """Write the schema's columns of the rows to a Parquet file."""
    parquet.write_parquet(pa.Table.from_pylist(rows, schema=schema), path)


def find_repeated(
    db: DuckDBPyConnection, batches: list[Path]
) -> dict[Path, dict[Place, str | None]]:
    """Each batch's documents whose id or page another document has, but for the one that stays.

    A copy has None, for it is left out: of an article of a dump the page's id decides, of other
    texts the text. Another text has a new id. Of a page's versions the newest stays, by the dates
    in the files' names. Else contents decide which one keeps the id, not the order of files. Copies
    for queries come first.
    """
    repeated: dict[Path, dict[Place, str | None]] = defaultdict(dict)
    if not batches:
        return repeated
    database.view(db, "documents", *batches, named=True)
    db.execute(
        """CREATE OR REPLACE TEMP TABLE outdated AS
        SELECT filename, file, row FROM documents WHERE page <> '' AND day <> ''
        QUALIFY day < max(day) OVER (PARTITION BY page);

        CREATE OR REPLACE TEMP VIEW ids AS
        FROM documents ANTI JOIN outdated USING (filename, file, row);

        CREATE OR REPLACE TEMP TABLE repeated AS
        SELECT source_document FROM ids GROUP BY ALL HAVING count(*) > 1"""
    )
    for path, file, row in db.sql("FROM outdated").fetchall():
        repeated[Path(path)][file, row] = None

    # Only batches with copies are read as a whole.
    with_copies = db.sql(
        "SELECT DISTINCT filename FROM ids SEMI JOIN repeated USING (source_document)"
    ).fetchall()
    if not with_copies:
        return repeated

    database.view(db, "copies", *sorted(Path(path) for (path,) in with_copies), named=True)
    query = f"""WITH same AS (
            SELECT *, CASE WHEN wikitext THEN '' ELSE md5(text) END AS contents
            FROM copies ANTI JOIN outdated USING (filename, file, row)
        ), ordered AS (
            FROM same SEMI JOIN repeated USING (source_document) SELECT *,
                row_number() OVER (PARTITION BY source_document ORDER BY {ORDER}) AS place,
                row_number() OVER (PARTITION BY source_document, contents ORDER BY {ORDER}) AS copy
        )
        SELECT filename, file, row,
            CASE WHEN copy = 1 THEN source_document || '-' || contents[:8] END
        FROM ordered WHERE place > 1"""
    for path, file, row, new_id in db.sql(query).fetchall():
        repeated[Path(path)][file, row] = new_id
    return repeated
