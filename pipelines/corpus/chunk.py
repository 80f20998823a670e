"""Stage `chunk`: cut a raw corpus into documents of `chunk.tokens` tokens, and queries from other source documents.

REPLUG, section 5: documents have 128 tokens; a query is a context and its continuation, 128 tokens each, from source
documents that are not in the corpus. Test queries are rolling windows over whole source documents. The work has three
steps: read source documents in batches (`sample`), clean and cut each batch (`cut`), and bring all batches together
(`assemble`).
"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

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
    out = Path("data/corpus") / name

    def work(chosen) -> dict[str, float]:
        metrics = build(Path("data/raw") / name, TOKENIZER, out, name, chosen)
        shards.write_json(Path("data/metrics") / f"corpus_{name}.json", metrics)
        return metrics

    sections = ("seed", "language", "compute", "ingest", "corpus", "chunk", "queries", "windows")
    stage.run(f"chunk@{name}", sections, work, out=str(out))


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
    with database.connect(chosen.ingest.memory_gb, chosen.compute.threads) as db:
        db.execute("SET preserve_insertion_order = false")  # saves memory; every result has an ORDER BY
        with processes(chosen.compute, 1 + sum(file.stat().st_size for file in files) // FOR_A_PROCESS) as executor:
            steps = _Steps(name, key, [part for file in files for part in wikipedia_parts(file)], executor)
            rounds = _read_and_cut(steps, settings, chosen.ingest.max_reject_share, db)
        metrics = assemble.write_corpus(db, out, settings, rounds, chosen.ingest.max_reject_share)
    steps.forget()
    return metrics


class _Steps(NamedTuple):
    """The steps whose work is mapped over processes; a killed run goes on within each step."""

    name: str
    key: str
    parts: list[Part]
    executor: Executor | None

    def map(self, step: str, work, items: list) -> list[Path]:
        return shards.map_shards(f"{step}-{self.name}", self.key, work, items, self.executor)

    def forget(self) -> None:
        for path in (shards.SCRATCH / "shards").glob(f"*-{self.name}-{self.key}"):
            shards.forget_shards(path.name.removesuffix(f"-{self.key}"), self.key)


def _read_and_cut(steps: _Steps, settings: Settings, max_reject_share: float, db) -> list[assemble.Round]:
    """Read and cut all source documents; of a capped corpus, round after round until there are enough."""
    draw = sample.Draw(settings.seed, settings.corpus, settings.queries)
    wanted = settings.corpus.documents
    histogram = sample.KeyHistogram()
    if wanted:
        for path in steps.map("measure", partial(sample.measure_part, steps.name, draw), steps.parts):
            histogram.characters += np.frombuffer(path.read_bytes(), dtype=np.int64)
        characters = wanted * settings.chunk.tokens * sample.CHARACTERS_PER_TOKEN * sample.MARGIN
        draw = draw._replace(high=histogram.bound(characters, draw.low))
    rounds: list[assemble.Round] = []
    while True:
        number = len(rounds)
        reader = partial(sample.read_part, steps.name, max_reject_share, sample.BATCH_BYTES, draw)
        read = steps.map(f"read{number}", reader, steps.parts)
        assemble.check_weights(steps.name, settings.corpus.weights, read)
        batches = _batches(db, [*(each.read for each in rounds), read], settings)
        cut = steps.map(f"cut{number}", partial(cut_batch, settings), batches)
        rounds.append(assemble.Round(read, cut, batches))
        if draw.high == math.inf:
            return rounds
        documents = assemble.count_documents(db, rounds)
        if documents >= wanted:
            return rounds
        characters = wanted * histogram.characters_up_to(draw.high) / max(documents, 1) * sample.MARGIN
        draw = draw._replace(low=draw.high, high=histogram.bound(characters, draw.high))


def _batches(db, read: list[list[Path]], settings: Settings) -> list[Batch]:
    """The last round's batches, each with those of its rows that repeat a document of this or an earlier round."""
    rounds = [[path for folder in folders for path in sorted(folder.glob("[0-9]*.parquet"))] for folders in read]
    duplicates: dict[str, list[str]] = {}
    for path, row in assemble.duplicates(db, [path for paths in rounds for path in paths], settings.corpus.weights):
        duplicates.setdefault(path, []).append(row)
    return [Batch(path, tuple(duplicates.get(str(path), ()))) for path in rounds[-1]]


if __name__ == "__main__":
    main()
