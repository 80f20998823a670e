"""A model's bits per byte of a file of the Pile, without documents, by two protocols.

    .venv/bin/python -m benchmarks.pile_protocols --pile pile.jsonl.zst --model smollm2-135m

Rolling windows over whole documents, and the second 128 tokens of those documents that have 256, alone.
"""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.lm import open_model
from pipelines import draws, intervals
from pipelines.corpus.cut import rolling_windows
from pipelines.corpus.token_bytes import open_encoder
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.replug.ensemble import bits_per_byte
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.wikipedia import parts


def protocols(pile: Path, lm: LocalModel, folder: Path, n: int) -> list[str]:
    """Markdown: by subset, what rolling windows and documents' beginnings score; `n` drawn windows of each."""
    encoder, width = open_encoder(folder), 128
    rows: dict[str, list] = {}  # subset -> (document, its protocol's name, context, continuation)
    sizes: dict[str, list[tuple[int, bool]]] = {}  # subset -> bytes of each document, and whether it has 256 tokens
    for raw in chain.from_iterable(read_raw("pile", part, Rejects(0)) for part in parts(pile)):
        ends = encoder([raw.text]).ends
        data, bounds, long = raw.text.encode(), np.concatenate([[0], ends]), len(ends) >= 2 * width
        sizes.setdefault(raw.source, []).append((len(data), long))
        cuts = rolling_windows(ends, width, width, first=True)
        for begin, middle, end in bounds[cuts].tolist():
            window = (raw.source_document, data[begin:middle].decode(), data[middle:end].decode())
            rows.setdefault(raw.source, []).append(("whole", *window))
            if long and begin == 0 and middle:
                rows[raw.source].append(("beginning", *window))
    out = [
        "| subset | documents | too short for 128+128 | share of bytes in beginnings | bits per byte: beginnings "
        "| whole documents |"
    ]
    out += ["|---|---|---|---|---|---|"]
    totals = np.zeros((2, 2))  # protocol -> bits, bytes
    for subset, of_subset in sorted(rows.items()):
        n_bytes, long = (np.array(column) for column in zip(*sizes[subset], strict=True))
        figures = []
        for i, protocol in enumerate(("beginning", "whole")):
            of_protocol = [row[1:] for row in of_subset if row[0] == protocol]
            keys = [f"{name}:{number}" for number, (name, *_) in enumerate(of_protocol)]
            drawn = [of_protocol[j] for j in draws.sample(0, protocol, keys, n)]
            scores = lm.score([Prompt(context) for _, context, _ in drawn], [text for *_, text in drawn])
            nats = [-log_probs.sum(dtype=float) for log_probs in scores.log_probs]
            sums = np.stack([nats, [counts.sum() for counts in scores.bytes]], axis=1)
            of_document = intervals.cluster_sums(sums, np.array([name for name, *_ in drawn]))
            figures.append(intervals.bootstrap(of_document, _bits_per_byte, draws.generator(0, subset), 1000))
            scored = sum(len(text.encode()) for *_, text in of_protocol)
            totals[i] += figures[-1].value * scored, scored
        share = sum(len(row[-1].encode()) for row in of_subset if row[0] == "beginning") / n_bytes.sum()
        shown = [f"{f.value:.3f} [{f.low:.3f}, {f.high:.3f}]" for f in figures]
        out.append(f"| {subset} | {len(long)} | {1 - long.mean():.0%} | {share:.1%} | {' | '.join(shown)} |")
        print(out[-1], flush=True)
    before, now = totals[:, 0] / totals[:, 1]
    counts = np.concatenate([[long for _, long in of_subset] for of_subset in sizes.values()])
    share = totals[0, 1] / totals[1, 1]
    return [
        *out,
        f"| all, by bytes | {len(counts)} | {1 - counts.mean():.0%} | {share:.1%} | {before:.3f} | {now:.3f} |",
    ]


def _bits_per_byte(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 2) sums of nats and bytes."""
    return bits_per_byte(sums[:, 0], sums[:, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pile", type=Path, required=True, help="a file of the Pile, .jsonl.zst")
    parser.add_argument("--model", type=Path, required=True, help="the language model's folder")
    parser.add_argument("--windows", type=int, default=16, help="of each subset and protocol, at most")
    given = parser.parse_args()
    print("\n".join(protocols(given.pile, open_model(given.model, "fp32"), given.model, given.windows)))


if __name__ == "__main__":
    main()
