"""Raw text in the sources' formats for the benchmark of the corpora, made up by a seed."""

from __future__ import annotations

import bz2
import json
from pathlib import Path

import numpy as np
import zstandard

STREAM = 100  # pages


def write_pile(path: Path, megabytes: float) -> None:
    """Documents of made-up words, as frequent as words are, of lengths as mixed as the Pile's."""
    rng = np.random.default_rng(0)
    words, chances = _words(rng)
    with zstandard.open(path, "wt") as file:
        size = 0
        while size < megabytes * 1e6:
            text = _prose(rng, words, chances, int(rng.lognormal(5.8, 1.2)) + 5)
            size += len(text)
            file.write(json.dumps({"text": text, "meta": {"pile_set_name": f"Set{size % 7}"}}) + "\n")


def write_wikipedia(path: Path, megabytes: float) -> None:
    """Pages with an infobox, links, references and sections, about as much of them as a real page has.

    A multistream dump with its index, as Wikipedia's own are: STREAM pages in each bz2 stream.
    """
    rng = np.random.default_rng(1)
    words, chances = _words(rng)
    pages, size = [], 0
    while size < megabytes * 1e6:
        box = "".join(f"| {word} = [[{word}]]\n" for word in rng.choice(words, 20))
        parts = [f"{{{{Infobox\n{box}}}}}\n'''A''' is a [[{words[5]}|thing]]."]
        for title in rng.choice(words, int(rng.integers(1, 8))):
            prose = _prose(rng, words, chances, 150).split(". ")
            parts += [
                f"== {title} ==",
                *(f"{one}.&lt;ref&gt;{{{{cite|title={one[:30]}}}}}&lt;/ref&gt;" for one in prose),
            ]
        text = "\n".join(parts)
        size += len(text)
        head = f"<page><title>Page {size}</title><ns>0</ns><id>{size}</id>"
        pages.append(f"{head}<revision><id>1</id><text>{text}</text></revision></page>\n")
    data, index = bz2.compress(b"<mediawiki>"), []
    for first in range(0, len(pages), STREAM):
        own = pages[first : first + STREAM]
        index += [f"{len(data)}:{first + i}:Page {first + i}\n" for i in range(len(own))]
        data += bz2.compress("".join(own).encode())
    path.write_bytes(data + bz2.compress(b"</mediawiki>"))
    beside = path.name.replace("-multistream.xml", "-multistream-index.txt")
    path.with_name(beside).write_bytes(bz2.compress("".join(index).encode()))


def _words(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(rng.choice(letters, max(int(rng.poisson(6)), 1))) for _ in range(50_000)])
    chances = 1 / np.arange(3, 50_003)
    return words, np.cumsum(chances / chances.sum())


def _prose(rng: np.random.Generator, words: np.ndarray, chances: np.ndarray, count: int) -> str:
    own = words[np.minimum(np.searchsorted(chances, rng.random(count)), len(words) - 1)]
    sentences = [" ".join(part).capitalize() for part in np.array_split(own, max(count // 18, 1))]
    return ". ".join(sentences) + ".\n"
