"""The offline sample: a seeded fictional world, written in the formats of the real sources and read by their readers.

What the language model is trained on is kept apart from what it is evaluated with and retrieves from:
- C4, on which the language model is trained, states facts of the world in wordings of its own.
- C4 also holds whole pages in the wordings of Wikipedia and the Pile. They are about invented subjects, new ones in
  each document, and teach a small model to read but nothing about the world.
- C4 asks about half of the entities (`World.asked_as_evaluated`) in the wordings of PopQA and EntityQuestions too. So
  knowledge of a fact can be told from having seen the question.
The Pile and WikiText repeat the facts of Wikipedia's pages: the Pile in its own wordings, WikiText in Wikipedia's.
"""

import bz2
import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import zstandard

from pipelines import draws
from pipelines.params import params
from pipelines.world.facts import ALIASES, MMLU_SUBJECTS, OBJECTS, RELATION_IDS, World, make_world
from pipelines.world.text_corpora import WORDINGS, c4, pile, question, wikitext
from pipelines.world.wikimedia_dumps import pageviews, redirect_tables, wikidata, wikipedia

# Without a time in it; zstd's command writes a checksum too.
COMPRESSORS = {
    ".gz": lambda file: gzip.GzipFile("", "wb", 6, file, mtime=0),
    ".bz2": lambda file: bz2.BZ2File(file, "wb"),
    ".zst": lambda file: zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(
        file, closefd=False
    ),
}
Fact = tuple[int, str, int]  # entity, relation, object item


def write_world(folder: Path, seed: int, sizes: params.World, months: Sequence[str]) -> None:
    """Write every data set below `folder`, laid out as data/raw; equal arguments give equal bytes.

    Page views are of these months, YYYY-MM; the last one is the world's month.
    """
    world = make_world(seed, sizes)
    files = {"wikidata/world.json.gz": wikidata(world)}
    for before, month in enumerate(reversed(months)):
        files[f"pageviews/pageviews-{month.replace('-', '')}-user.bz2"] = pageviews(world, before)
    files |= {
        f"redirects/world-{name}.sql.gz": [table] for name, table in redirect_tables(world).items()
    }
    files["wikipedia/world-pages-articles.xml.bz2"] = wikipedia(world)
    files["pile/00.jsonl.zst"] = pile(world, sizes.pile_documents)
    documents, of_shard = c4(world, sizes), -(-sizes.lm_documents // sizes.lm_shards)
    for shard in range(sizes.lm_shards):
        files[f"c4/c4-train.{shard:05d}-of-{sizes.lm_shards:05d}.json.gz"] = islice(
            documents, of_shard
        )
    files |= {path: [content.encode()] for path, content in question_sets(world, sizes.questions)}
    files |= {
        f"wikitext/wiki.{split}.tokens": [text.encode()] for split, text in wikitext(world).items()
    }
    (folder / "popqa").mkdir(parents=True, exist_ok=True)
    for name, pieces in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file, COMPRESSORS.get(path.suffix, nullcontext)(file) as out:
            for piece in pieces:
                out.write(piece)


def question_sets(world: World, per_set: int) -> Iterator[tuple[str, str]]:
    """Yield (path, content) of each file; a set has about `per_set` questions."""
    rng = draws.generator(world.seed, "world/questions")
    chosen = rng.permutation(len(world.objects))[: 8 * per_set]
    entities = np.searchsorted(world.offsets, chosen, side="right") - 1
    pids = [RELATION_IDS[r] for r in world.relations[chosen]]
    facts = list(zip(entities.tolist(), pids, world.objects[chosen].tolist(), strict=True))
    yield from _entityquestions(world, facts, per_set)
    yield from _mmlu(world, rng, facts, per_set)
    yield "nq/test.jsonl", _open_questions(world, facts[per_set : 2 * per_set], 0)
    yield "triviaqa/test.jsonl", _open_questions(world, facts[2 * per_set : 3 * per_set], 1)


def _entityquestions(world: World, facts: list[Fact], per_set: int) -> Iterator[tuple[str, str]]:
    """The names of four fifths of the subjects belong to no other entity."""
    times, by_relation = Counter(world.labels), {}
    unambiguous = [fact for fact in facts if times[world.labels[fact[0]]] == 1][: per_set * 4 // 5]
    for entity, pid, item in unambiguous + facts[: per_set - len(unambiguous)]:
        row = {
            "question": question(pid, 3, world.labels[entity]),
            "answers": [world.item_label(item)],
        }
        by_relation.setdefault(pid, []).append(row)
    for pid, rows in sorted(by_relation.items()):
        yield f"entityquestions/{pid}.test.json", json.dumps(rows, indent=4)
    templates = {pid: WORDINGS[pid]["entityquestions"].replace("{}", "[X]") for pid in RELATION_IDS}
    yield "entityquestions/relation_query_templates.json", json.dumps(templates, indent=4)


def _mmlu(
    world: World, rng: np.random.Generator, facts: list[Fact], per_set: int
) -> Iterator[tuple[str, str]]:
    for subject, relations in MMLU_SUBJECTS.items():
        asked = [fact for fact in facts if fact[1] in relations][
            : per_set // len(MMLU_SUBJECTS) + 5
        ]
        rows = [_multiple_choice(world, rng, *fact) for fact in asked]
        for split, part in (("dev", rows[:5]), ("test", rows[5:])):
            table = io.StringIO()
            csv.writer(table, lineterminator="\n").writerows(part)
            yield f"mmlu/{split}/{subject}_{split}.csv", table.getvalue()


def _multiple_choice(
    world: World, rng: np.random.Generator, entity: int, pid: str, item: int
) -> list[str]:
    """A row of MMLU: question, four options, the letter of the right one."""
    right = world.item_label(item)
    same_class = [
        world.item_label(int(other)) for other in rng.permutation(world.pools[OBJECTS[pid]])[:12]
    ]
    others = [
        *same_class,
        *world.labels[:8],
    ]  # a small world may have less than four labels of the class
    options = [right, *list(dict.fromkeys(label for label in others if label != right))[:3]]
    order = rng.permutation(len(options))
    return [
        question(pid, 0, world.labels[entity]),
        *(options[i] for i in order),
        "ABCD"[order.tolist().index(0)],
    ]


def _open_questions(world: World, facts: list[Fact], wording: int) -> str:
    """JSON lines; wording 0 is in lower case without a question mark, as people type, like Natural Questions."""
    lines = ""
    for i, (entity, pid, item) in enumerate(facts):
        text, label = question(pid, wording, world.labels[entity]), world.item_label(item)
        text = text[0].lower() + text[1:-1] if wording == 0 else text
        row = {
            "id": f"test_{i}",
            "question": text,
            "golden_answers": [label, *ALIASES.get(label, [])],
        }
        lines += json.dumps(row) + "\n"
    return lines
