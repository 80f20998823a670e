"""Stage `chunk`: a raw corpus to documents of `chunk.tokens` tokens, and to queries from other source documents.

REPLUG, section 5: documents of 128 tokens; a query is a context and its continuation, 128 tokens each, from source
documents that the corpus doesn't have.
"""

from __future__ import annotations

import argparse
import math
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipelines import catalogue, code, database, shards, stage
from pipelines.corpus import assemble
from pipelines.errors import LongtailError
from pipelines.pool import processes
from pipelines.sources.multistream import parts
from pipelines.sources.streams import source_files

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from pipelines.corpus.cut_batch import Batch, Settings
    from pipelines.sources.multistream import Part

TOKENIZER = Path("data/models/tokenizer")
FOR_A_PROCESS = 1_000_000  # bytes of source files: with less to do than that, it takes longer to start one


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.corpus.chunk", description=__doc__.splitlines()[0])
    parser.add_argument("corpus", choices=catalogue.names("documents"))
    name = parser.parse_args().corpus
    out = Path("data/corpus") / name

    def work(chosen) -> dict[str, float]:
        metrics = build(Path("data/raw") / name, TOKENIZER, out, name, chosen)
        shards.write_json(Path("data/metrics") / f"corpus_{name}.json", metrics)
        return metrics

    stage.run(f"chunk@{name}", ("seed", "compute", "ingest", "corpus", "chunk", "queries"), work, out=str(out))


def build(raw: Path, tokenizer: Path, out: Path, name: str, chosen) -> dict[str, float]:
    """Write docs.parquet, queries.parquet and rejects.parquet of corpus `name` to `out`; return counts.

    `chosen` has the params' seed, compute, ingest, corpus, chunk and queries. Raises LongtailError on damaged files,
    too many bad rows, or a corpus without documents.
    """
    from pipelines.corpus.cut_batch import Settings

    files, query_files = source_files(raw), chosen.corpus[name].query_files
    if query_files and not any(fnmatchcase(file.name, query_files) for file in files):
        raise LongtailError(
            f"params.yaml: corpus.{name}.query_files is {query_files}, expected a glob that names a file in {raw}"
        )
    settings = Settings(name, tokenizer, chosen.seed, chosen.corpus[name], chosen.chunk, chosen.queries)
    key = shards.key_of(
        code.fingerprint("pipelines.corpus.chunk"),
        catalogue.facts(name),
        tokenizer,
        settings,
        [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files],
    )
    with database.connect(chosen.ingest.memory_gb, chosen.compute.threads) as con:
        con.execute("SET preserve_insertion_order = false")  # less memory, and every result is ordered by what it says
        with processes(chosen.compute, 1 + sum(file.stat().st_size for file in files) // FOR_A_PROCESS) as executor:
            work = _Work(name, key, [part for file in files for part in parts(file)], executor)
            rounds = _rounds(work, settings, chosen.ingest.max_reject_share, con)
        metrics = assemble.write(con, out, settings, rounds, chosen.ingest.max_reject_share)
    work.forget()
    return metrics


class _Work(NamedTuple):
    """The mapped parts of the stage, each resumable by itself."""

    name: str
    key: str
    parts: list[Part]
    executor: Executor | None

    def map(self, step: str, work, items: list) -> list[Path]:
        return shards.map_shards(f"{step}-{self.name}", self.key, work, items, self.executor)

    def forget(self) -> None:
        for path in (shards.SCRATCH / "shards").glob(f"*-{self.name}-{self.key}"):
            shards.forget(path.name.removesuffix(f"-{self.key}"), self.key)


def _rounds(work: _Work, settings: Settings, max_reject_share: float, con) -> list[assemble.Round]:
    """Read and cut all source documents, or, of a capped corpus, more and more of them until they are enough."""
    from pipelines.corpus.batches import BATCH_BYTES, measure_part, read_part
    from pipelines.corpus.cut_batch import cut_batch
    from pipelines.corpus.sample import CHARACTERS_PER_TOKEN, MARGIN, Draw, Sizes

    draw = Draw(settings.seed, settings.corpus, settings.queries)
    wanted = settings.corpus.documents
    sizes = Sizes()
    if wanted:
        for path in work.map("measure", partial(measure_part, work.name, draw), work.parts):
            sizes.load(path)
        draw = draw._replace(high=sizes.reach(wanted * settings.chunk.tokens * CHARACTERS_PER_TOKEN * MARGIN, draw.low))
    rounds: list[assemble.Round] = []
    while True:
        step = len(rounds)
        reader = partial(read_part, work.name, max_reject_share, BATCH_BYTES, draw)
        read = work.map(f"read{step}", reader, work.parts)
        assemble.check_weights(work.name, settings.corpus.weights, read)
        batches = _batches(con, [*(one.read for one in rounds), read], settings)
        rounds.append(assemble.Round(read, work.map(f"cut{step}", partial(cut_batch, settings), batches), batches))
        if draw.high == math.inf:
            return rounds
        found = assemble.chunks(con, rounds)
        if found >= wanted:
            return rounds
        needed = wanted * sizes.upto(draw.high) / max(found, 1) * MARGIN
        draw = draw._replace(low=draw.high, high=sizes.reach(needed, draw.high))


def _batches(con, read: list[list[Path]], settings: Settings) -> list[Batch]:
    """The last round's batches, each with the rows left out as duplicates of a document elsewhere, in any round."""
    from pipelines.corpus.cut_batch import Batch

    paths = [[str(path) for folder in folders for path in sorted(folder.glob("[0-9]*.parquet"))] for folders in read]
    left_out: dict[str, list[str]] = {}
    for filename, row in assemble.duplicates(con, [path for one in paths for path in one], settings.corpus.weights):
        left_out.setdefault(filename, []).append(row)
    return [Batch(Path(path), tuple(left_out.get(path, ()))) for path in paths[-1]]


if __name__ == "__main__":
    main()
