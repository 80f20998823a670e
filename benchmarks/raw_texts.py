"""Generated raw files in the layouts of the Pile and of Wikipedia, of any size.

Words are made up, and as frequent as words are.
"""

import bz2
import json
from pathlib import Path

import numpy as np
import zstandard

LETTERS = np.array(list("etaoinshrdlucmfwypvbgk"))
WORDS = 50_000
WORDS_OF_SENTENCE = 18
PAGES_OF_STREAM = 100


class Prose:
    """Sentences of words that are drawn by Zipf's law."""

    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw
        lengths = (max(int(draw.poisson(6)), 1) for _ in range(WORDS))
        self.words = np.array(["".join(draw.choice(LETTERS, length)) for length in lengths])
        chances = 1 / np.arange(3, WORDS + 3)
        self._cumulated = np.cumsum(chances / chances.sum())

    def write(self, count: int) -> str:
        """Sentences of `count` words in all."""
        places = np.searchsorted(self._cumulated, self._draw.random(count))
        words = self.words[np.minimum(places, WORDS - 1)]
        n_sentences = max(count // WORDS_OF_SENTENCE, 1)
        sentences = []
        for sentence in np.array_split(words, n_sentences):
            sentences.append(" ".join(sentence).capitalize())
        return ". ".join(sentences) + ".\n"


def write_pile(path: Path, megabytes: float) -> None:
    """Documents of lengths as mixed as the Pile's."""
    draw = np.random.default_rng(0)
    prose = Prose(draw)
    size = 0
    with zstandard.open(path, "wt") as file:
        while size < megabytes * 1e6:
            text = prose.write(int(draw.lognormal(5.8, 1.2)) + 5)
            size += len(text)
            line = {"text": text, "meta": {"pile_set_name": f"Set{size % 7}"}}
            file.write(json.dumps(line) + "\n")


def write_wikipedia(path: Path, megabytes: float) -> None:
    """A multistream dump with its index, as Wikipedia's own are."""
    draw = np.random.default_rng(1)
    prose = Prose(draw)
    pages = []
    size = 0
    while size < megabytes * 1e6:
        text = write_page(draw, prose)
        size += len(text)
        head = f"<page><title>Page {size}</title><ns>0</ns><id>{size}</id>"
        pages.append(f"{head}<revision><id>1</id><text>{text}</text></revision></page>\n")

    data = bz2.compress(b"<mediawiki>")
    index = []
    for first in range(0, len(pages), PAGES_OF_STREAM):
        stream = pages[first : first + PAGES_OF_STREAM]
        for number in range(first, first + len(stream)):
            index.append(f"{len(data)}:{number}:Page {number}\n")
        data += bz2.compress("".join(stream).encode())
    path.write_bytes(data + bz2.compress(b"</mediawiki>"))
    index_name = path.name.replace("-multistream.xml", "-multistream-index.txt")
    path.with_name(index_name).write_bytes(bz2.compress("".join(index).encode()))


def write_page(draw: np.random.Generator, prose: Prose) -> str:
    """A page's wikitext, with an infobox, links, references and sections, about as much of them as
    a real page has.
    """
    cells = "".join(f"| {word} = [[{word}]]\n" for word in draw.choice(prose.words, 20))
    lines = [f"{{{{Infobox\n{cells}}}}}\n'''A''' is a [[{prose.words[5]}|thing]]."]
    for title in draw.choice(prose.words, int(draw.integers(1, 8))):
        lines.append(f"== {title} ==")
        for sentence in prose.write(150).split(". "):
            reference = f"&lt;ref&gt;{{{{cite|{sentence[:30]}}}}}&lt;/ref&gt;"
            lines.append(f"{sentence}.{reference}")
    return "\n".join(lines)
