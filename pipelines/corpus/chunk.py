"""Stage `chunk`: cut a raw corpus into documents of `chunk.tokens` tokens, and queries from other source documents.

REPLUG, section 5: documents have 128 tokens; a query is a context and its continuation, 128 tokens each, from source
documents that are not in the corpus. Test queries are rolling windows over whole source documents. The work has three
steps: read source documents in batches (`sample`), clean and cut each batch (`cut`), and bring all batches together
(`assemble`).
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from pipelines import catalogue
from pipelines.corpus import assemble, sample
from pipelines.corpus.cut import Batch, Settings, cut_batch
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.sources.source_documents import is_psgs
from pipelines.sources.streams import source_files
from pipelines.sources.wikipedia import Part, wikipedia_parts
from pipelines.storage import database, shards
from pipelines.work import code, stage
from pipelines.work.pool import processes

TOKENIZER = Path("data/models/tokenizer")
FOR_A_PROCESS = 1_000_000  # bytes of source files; with less than that to read, starting a process takes longer


def main() -> None:
    name = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    raw, out = Path("data/raw", name), Path("data/corpus", name)
    stage.run(
        f"chunk@{name}",
        ("seed", "language", "compute", "ingest", "corpus", "chunk", "queries", "windows"),
        lambda chosen: build(raw, TOKENIZER, out, name, chosen),
        out=str(out),
        metrics=Path(f"data/metrics/corpus_{name}.json"),
    )


def build(raw: Path, tokenizer: Path, out: Path, name: str, chosen) -> dict[str, float]:
    """Write docs.parquet, queries.parquet and rejects.parquet of corpus `name` to `out`; return counts.

    Raises LongtailError on damaged files, too many bad rows, or a corpus without documents.
    """
    files, corpus = source_files(raw), chosen.corpus[name]
    for key, glob in (("test_files", corpus.test_files), ("validation_files", corpus.validation_files)):
        if glob and not any(fnmatchcase(file.name, glob) for file in files):
            raise LongtailError(
                f"params.yaml: corpus.{name}.{key} is {glob}, expected a glob that names a file in {raw}"
            )
    if corpus.has_queries and (passages := list(filter(is_psgs, files))):
        raise LongtailError(
            f"params.yaml: corpus.{name} asks for queries, expected query_share 0, test_files null and "
            f"validation_files null: {passages[0]} holds passages, and others of a query's page would be in the corpus"
        )
    media = language.read_language(chosen.language).media
    settings = Settings(name, tokenizer, chosen.seed, corpus, chosen.chunk, chosen.queries, chosen.windows, media)
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = shards.key_of(code.fingerprint("pipelines.corpus.chunk"), catalogue.facts(name), tokenizer, settings, stats)
    parts = [part for file in files for part in wikipedia_parts(file)]
    with database.connect(chosen.ingest.memory_gb, chosen.compute.threads) as db:
        db.execute("SET preserve_insertion_order = false")  # saves memory; every result has an ORDER BY
        with processes(chosen.compute, 1 + sum(file.stat().st_size for file in files) // FOR_A_PROCESS) as executor:

            def map_step(step: str, work, items: list) -> list[Path]:
                return shards.map_shards(f"{step}-{name}", key, work, items, executor)

            rounds = _read_and_cut(map_step, parts, settings, chosen.ingest.max_reject_share, db)
        metrics = assemble.write_corpus(db, out, settings, rounds, chosen.ingest.max_reject_share)
    for path in (shards.SCRATCH / "shards").glob(f"*-{name}-{key}"):
        shards.forget_shards(*path.name.rsplit("-", 1))
    return metrics


def _read_and_cut(
    map_step: Callable[..., list[Path]], parts: list[Part], settings: Settings, max_reject_share: float, db
) -> list[assemble.Round]:
    """Read and cut all source documents; of a capped corpus, a small share, and then more until there are enough."""
    wanted = settings.corpus.documents
    draw = sample.Draw(settings.seed, settings.corpus, settings.queries, high=sample.FIRST_ROUND if wanted else 1.0)
    rounds: list[assemble.Round] = []
    while True:
        reader = partial(sample.read_part, settings.name, max_reject_share, sample.BATCH_BYTES, draw)
        read = map_step(f"read{len(rounds)}", reader, parts)
        files = [path for folder in read for path in sorted(folder.glob("[0-9]*.parquet"))]
        repeated: dict[str, list[str]] = {}
        for path, row in assemble.duplicates(db, [*(batch.path for each in rounds for batch in each.batches), *files]):
            repeated.setdefault(path, []).append(row)
        batches = [Batch(path, tuple(repeated.get(str(path), ()))) for path in files]
        cut = map_step(f"cut{len(rounds)}", partial(cut_batch, settings), batches)
        rounds.append(assemble.Round(read, cut, batches))
        if draw.high >= 1:
            return rounds
        documents = assemble.count_documents(db, rounds)
        if documents >= wanted:
            return rounds
        draw = draw._replace(low=draw.high, high=draw.high * sample.MARGIN * wanted / documents if documents else 1.0)


if __name__ == "__main__":
    main()
