"""Stage `chunk`: cut a raw corpus into documents of `chunk.tokens` tokens, and queries from other
source documents.

REPLUG, section 5: documents have 128 tokens; a query is a context and its continuation, 128 tokens
each, from source documents that are not in the corpus. Test queries are rolling windows over whole
source documents. The work has three steps: read source documents in batches (source_batches.py),
clean and cut each batch (cut.py), and have DuckDB bring all batches together, in one order and
without duplicates (corpus_tables.py).

A capped corpus takes source documents in the order of their keys, smallest first. A key is a hash
of the document's id. So a document's place does not depend on files or processes.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from pathlib import Path

from duckdb import DuckDBPyConnection

from pipelines import catalogue
from pipelines.corpus.corpus_tables import count_documents, write_corpus
from pipelines.corpus.cut import cut_batch
from pipelines.corpus.source_batches import Batch, CorpusSettings, find_repeated, read_part
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params.param_types import Section
from pipelines.params.params import Chunk, Compute, Corpus, Ingest, Queries, Windows
from pipelines.sources.streams import source_files
from pipelines.sources.wikipedia import source_parts
from pipelines.storage import database
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code, stage
from pipelines.work.executors import processes

TOKENIZER = Path("data/models/tokenizer")
# bytes of source files; with less than that to read, starting a process takes longer
BYTES_PER_PROCESS = 1_000_000
FIRST_ROUND = 0.01  # share of the source documents that the first round of a capped corpus reads
MARGIN = 1.1  # how much more is read in the next round than seems to be needed
BATCH_BYTES = 4_000_000  # of raw text


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    language: str
    compute: Compute
    ingest: Ingest
    corpus: dict[str, Corpus]
    chunk: Chunk
    queries: Queries
    windows: Windows


@dataclass(frozen=True)
class Pieces:
    """What the processes wrote: a folder for each part of the source files, and one for each
    batch.
    """

    parts: list[Path]
    batches: list[Path]
    copies: int  # source documents that were left out, because they repeat another


def build(raw: Path, tokenizer: Path, out: Path, name: str, settings: Settings) -> dict[str, float]:
    """Write docs.parquet, queries.parquet and rejects.parquet of corpus `name` to `out`; return
    counts.

    Of a capped corpus a small share is read and cut first, and then as much as seems to be needed.
    Raises LongtailError on damaged files, too many bad rows, or a corpus without documents.
    """
    files = source_files(raw)
    _check_globs(raw, files, name, settings.corpus[name])
    corpus_settings = CorpusSettings(
        name=name,
        tokenizer=tokenizer,
        seed=settings.seed,
        corpus=settings.corpus[name],
        chunk=settings.chunk,
        queries=settings.queries,
        windows=settings.windows,
        media=language.read_language(settings.language).media,
    )
    key = content_key(
        (catalogue.facts(name), corpus_settings),
        code.fingerprint("pipelines.corpus.chunk"),
        tokenizer,
        *files,
    )

    store = WorkStore()
    with database.connect(settings.ingest.memory_gb, settings.compute.threads) as db:
        # saves memory; every result has an ORDER BY
        db.execute("SET preserve_insertion_order = false")
        pieces = _read_and_cut(db, files, corpus_settings, settings, store, key)
        metrics = write_corpus(
            db,
            out,
            corpus_settings,
            pieces.parts,
            pieces.batches,
            settings.ingest.max_reject_share,
        )
    for path in store.folder.glob(f"*-{name}/{key}"):
        store.forget(path.parent.name, key)
    if pieces.copies:
        print(
            f"{name}: {pieces.copies:,} source documents repeat a text, or a page of a newer dump, "
            "and are left out"
        )
    return metrics | {"duplicates": float(pieces.copies)}


def _check_globs(raw: Path, files: list[Path], name: str, corpus: Corpus) -> None:
    """Raise LongtailError where the files of a published split are named by a glob that no file
    matches.
    """
    globs = {"test_files": corpus.test_files, "validation_files": corpus.validation_files}
    for key, glob in globs.items():
        if glob and not any(fnmatchcase(file.name, glob) for file in files):
            raise LongtailError(
                f"params.yaml: corpus.{name}.{key} is {glob}, expected a glob that names a file "
                f"in {raw}"
            )


def _read_and_cut(
    db: DuckDBPyConnection,
    files: list[Path],
    corpus_settings: CorpusSettings,
    settings: Settings,
    store: WorkStore,
    key: str,
) -> Pieces:
    """Read and cut a share of the source documents, and a larger one until there are documents
    enough.
    """
    name = corpus_settings.name
    wanted = corpus_settings.corpus.documents  # None: all
    share = FIRST_ROUND if wanted else 1.0
    parts = source_parts(*files)
    n_bytes = sum(file.stat().st_size for file in files)
    with processes(settings.compute, 1 + n_bytes // BYTES_PER_PROCESS) as executor:
        for number in count():
            read = partial(
                read_part, corpus_settings, settings.ingest.max_reject_share, BATCH_BYTES, share
            )
            part_folders = store.parts(f"read{number}-{name}", key, parts, read, executor)
            paths = []
            for folder in part_folders:
                paths += sorted(folder.glob("[0-9]*.parquet"))

            repeated = find_repeated(db, paths)
            batches = [Batch(path, repeated[path]) for path in paths]
            cut = partial(cut_batch, corpus_settings)
            batch_folders = store.parts(f"cut{number}-{name}", key, batches, cut, executor)
            documents = count_documents(db, batch_folders)
            if wanted is None or share == 1 or documents >= wanted:
                break
            share = min(share * MARGIN * wanted / documents, 1.0) if documents else 1.0

    copies = 0
    for batch in batches:
        copies += list(batch.repeated.values()).count(None)
    return Pieces(part_folders, batch_folders, copies)


def main() -> None:
    name = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    raw = Path("data/raw") / name
    out = Path("data/corpus") / name

    def build_corpus(settings: Settings) -> stage.Metrics:
        return build(raw, TOKENIZER, out, name, settings)

    metrics = Path(f"data/metrics/corpus_{name}.json")
    stage.run(f"chunk@{name}", Settings, build_corpus, out=str(out), metrics=metrics)


if __name__ == "__main__":
    main()
