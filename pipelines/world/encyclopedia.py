"""The sample world's WikiText: encyclopedic articles in that data set's tokenised look, some of them its test split."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pipelines import draws
from pipelines.world.facts import TYPE_NAMES, World
from pipelines.world.sentences import page

ENTITIES = 90  # with two articles each, so that the training split has something to tell of the test split's
TEST_SHARE = 1 / 6  # of the articles
RARE = 3  # as in WikiText: a word that the training split has less often is <unk>
SENTENCE = re.compile(r"(?<=\.) ")
MARKS = re.compile(r"(?<=\w)([-,])(?=\w)|([.,()])")


def write_wikitext(folder: Path, world: World) -> None:
    """Write wiki.train.tokens and wiki.test.tokens; which of them an article is in, a hash of its title says."""
    splits: dict[str, list[list[str]]] = {"train": [], "test": []}
    for title, lines in _articles(world):
        test = draws.uniform(world.seed, "world/wikitext split", title) < TEST_SHARE
        splits["test" if test else "train"] += map(_words, lines)
    known = Counter(word for words in splits["train"] for word in words)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in splits.items():
        shown = ([word if known[word] >= RARE else "<unk>" for word in words] for words in lines)
        text = "".join(f" {' '.join(words)} \n" if words else " \n" for words in shown)
        (folder / f"wiki.{name}.tokens").write_text(text, encoding="utf-8")


def _articles(world: World) -> Iterator[tuple[str, list[str]]]:
    """(title, lines) of articles about entities that a hash chooses: one on each, and one on its legacy."""
    values, names = len(world.value_labels), [str(entity) for entity in range(len(world.labels))]
    for entity in draws.sample(world.seed, "world/wikitext", names, ENTITIES).tolist():
        label, kind = world.labels[entity], TYPE_NAMES[world.types[entity]]
        facts = [(pid, world.item_label(item)) for pid, item in world.facts(entity)]
        named = world.title(values + entity)
        for title, section in ((named, "Overview"), (f"Legacy of {named}", "Legacy")):
            numbers = draws.generator(world.seed, "world/wikitext", title).integers(0, 1 << 30, 24).tolist()
            lead, *told = SENTENCE.split(page("article", kind, label, facts, iter(numbers)))
            read = f"{label} is a well-known {kind}, read about {world.views(values + entity):,} times a month."
            yield title, ["", f"= {title} =", "", f"{lead} {read}", "", f"= = {section} = =", "", " ".join(told)]


def _words(line: str) -> list[str]:
    """Words and marks, a mark within a word or number as `@-@` or `@,@`."""
    return MARKS.sub(lambda mark: f" @{mark[1]}@ " if mark[1] else f" {mark[2]} ", line).split()
