"""Stage `chunk`: cut a raw corpus into documents of `chunk.tokens` tokens, and queries from other source documents.

REPLUG, section 5: documents have 128 tokens; a query is a context and its continuation, 128 tokens each, from source
documents that are not in the corpus. Test queries are rolling windows over whole source documents. The work has three
steps: read source documents in batches (`read_part`), clean and cut each batch (`cut`), and bring all batches together
(`assemble`).

A capped corpus takes source documents in the order of their keys, smallest first. A key is a hash of the document's id.
So a document's place does not depend on files or processes.
"""

from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa

from pipelines import catalogue, draws
from pipelines.corpus import assemble
from pipelines.corpus.cut import Batch, Settings, cut_batch, write_rows
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.streams import source_files
from pipelines.sources.wikipedia import Part, wikipedia_parts
from pipelines.storage import database, shards
from pipelines.work import code, stage
from pipelines.work.pool import processes

TOKENIZER = Path("data/models/tokenizer")
FOR_A_PROCESS = 1_000_000  # bytes of source files; with less than that to read, starting a process takes longer
FIRST_ROUND = 0.01  # share of the source documents that the first round of a capped corpus reads
MARGIN = 1.1  # how much more is read in the next round than seems to be needed
BATCH_BYTES = 4_000_000  # of raw text
BATCH = pa.schema(
    [("source_document", pa.string()), ("source", pa.string()), ("title", pa.string()), ("text", pa.string()),
     ("file", pa.string()), ("row", pa.int64()), ("wikitext", pa.bool_()), ("whole", pa.bool_()),
     ("split", pa.string()), ("key", pa.float64())]
)  # fmt: skip


def build(raw: Path, tokenizer: Path, out: Path, name: str, chosen) -> dict[str, float]:
    """Write docs.parquet, queries.parquet and rejects.parquet of corpus `name` to `out`; return counts.

    Of a capped corpus a small share is read and cut first, and then as much as seems to be needed. Raises LongtailError
    on damaged files, too many bad rows, or a corpus without documents.
    """
    files, corpus = source_files(raw), chosen.corpus[name]
    for key, glob in (("test_files", corpus.test_files), ("validation_files", corpus.validation_files)):
        if glob and not any(fnmatchcase(file.name, glob) for file in files):
            raise LongtailError(
                f"params.yaml: corpus.{name}.{key} is {glob}, expected a glob that names a file in {raw}"
            )
    media = language.read_language(chosen.language).media
    settings = Settings(name, tokenizer, chosen.seed, corpus, chosen.chunk, chosen.queries, chosen.windows, media)
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = shards.key_of(code.fingerprint("pipelines.corpus.chunk"), catalogue.facts(name), tokenizer, settings, stats)
    parts = [part for file in files for part in wikipedia_parts(file)]
    max_reject_share, share = chosen.ingest.max_reject_share, FIRST_ROUND if corpus.documents else 1.0
    with database.connect(chosen.ingest.memory_gb, chosen.compute.threads) as db:
        db.execute("SET preserve_insertion_order = false")  # saves memory; every result has an ORDER BY
        with processes(chosen.compute, 1 + sum(file.stat().st_size for file in files) // FOR_A_PROCESS) as executor:
            for number in count():
                reader = partial(read_part, settings, max_reject_share, BATCH_BYTES, share)
                read = shards.map_shards(f"read{number}-{name}", key, reader, parts, executor)
                batches = [path for folder in read for path in sorted(folder.glob("[0-9]*.parquet"))]
                repeated = assemble.repeated(db, batches)
                batches = [Batch(path, repeated[path]) for path in batches]
                cut = shards.map_shards(f"cut{number}-{name}", key, partial(cut_batch, settings), batches, executor)
                documents = assemble.count_documents(db, cut)
                if share == 1 or documents >= corpus.documents:
                    break
                share = min(share * MARGIN * corpus.documents / documents, 1.0) if documents else 1.0
        metrics = assemble.write_corpus(db, out, settings, read, cut, max_reject_share)
    for path in (shards.SCRATCH / "shards").glob(f"*-{name}-{key}"):
        shards.forget_shards(*path.name.rsplit("-", 1))
    left_out = [new for of_batch in repeated.values() for new in of_batch.values() if new is None]
    return metrics | {"duplicates": float(len(left_out))}


def split_of(settings: Settings, source_document: str, file: str) -> str:
    """The split of a source document, one of near_duplicates.SPLITS: a hash of (seed, document id) decides.

    Documents in the files of a published test or validation split have that split, and no others have it.
    """
    published = {"test": settings.corpus.test_files, "validation": settings.corpus.validation_files}
    for split, glob in published.items():
        if glob is not None and fnmatchcase(file, glob):
            return split
    if draws.uniform(settings.seed, "query source", source_document) >= settings.corpus.query_share:
        return "corpus"
    u = draws.uniform(settings.seed, "query split", source_document)
    for split, share in (("test", settings.queries.test_share), ("validation", settings.queries.validation_share)):
        if published[split] is None:
            if u < share:
                return split
            u -= share
    return "train"


def read_part(
    settings: Settings, max_reject_share: float, batch_bytes: int, share: float, part: Part, out: Path
) -> None:
    """Write a `share` of a part's documents to the folder `out`, in files of `batch_bytes`; also rejects and read.json.

    Documents that give queries are all read: their key is 0.
    """
    out.mkdir()
    rejects = Rejects(max_reject_share)
    batch: list[tuple] = []
    size = batches = 0
    for document in read_raw(settings.name, part, rejects):
        if document.whole and settings.corpus.has_queries:
            raise LongtailError(
                f"params.yaml: corpus.{settings.name} asks for queries, expected query_share 0, test_files null and "
                f"validation_files null: {part.file} holds passages, and others of a query's page would be in the "
                "corpus"
            )
        split = split_of(settings, document.source_document, document.file)
        key = draws.uniform(settings.seed, "corpus", document.source_document) if split == "corpus" else 0.0
        if key <= share:
            batch.append((*document, split, key))
            size += len(document.text.encode("utf-8"))
        if size >= batch_bytes:
            write_rows(batch, BATCH, out / f"{batches:06d}.parquet")
            batch, size, batches = [], 0, batches + 1
    if batch:
        write_rows(batch, BATCH, out / f"{batches:06d}.parquet")
    rejects.write(out / "rejects.parquet")
    shards.write_json(out / "read.json", {"read": rejects.read, "skipped": rejects.skipped})


if __name__ == "__main__":
    name = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    raw, out = Path("data/raw", name), Path("data/corpus", name)
    stage.run(
        f"chunk@{name}",
        ("seed", "language", "compute", "ingest", "corpus", "chunk", "queries", "windows"),
        lambda chosen: build(raw, TOKENIZER, out, name, chosen),
        out=str(out),
        metrics=Path(f"data/metrics/corpus_{name}.json"),
    )
