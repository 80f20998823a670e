"""Make the sample's files: `python -m sample.make`, in the project's folder.

It writes sample/data and sample/models from the recipe in sizes.py. --seed and --out make another
world elsewhere.
"""

import argparse
from pathlib import Path

import torch

from sample.make.data_files import write_data
from sample.make.sizes import Recipe
from sample.make.train_lm import train_language_model
from sample.make.train_retriever import train_retriever
from sample.make.train_tokenizer import train_tokenizer
from sample.make.training_texts import read_c4

SAMPLE = Path(__file__).resolve().parents[1]
CARD = """\
---
license: apache-2.0
---

A tiny model of a fictional world, made by Longtail's `python -m sample.make`.
Nothing that it says is a fact.
"""


def make_sample(out: Path, recipe: Recipe) -> None:
    """Write the world to `out`/data, and its tokenizer, language model and encoder to
    `out`/models.
    """
    write_data(out / "data", recipe)
    documents = list(read_c4(out / "data" / "c4"))
    models = out / "models"

    texts = [text for _, text in documents]
    train_tokenizer(texts, recipe.vocabulary, models / "tokenizer")

    # of a document with a page about an invented subject, the page alone
    pages = [text.partition("\n")[0] for kind, text in documents if kind != "world"]
    losses = train_retriever(
        pages, models / "tokenizer", models / "retriever", recipe.seed, recipe.retriever
    )
    print(f"retriever: loss {losses[-1]:.3f}", flush=True)

    metrics = train_language_model(
        documents, models / "tokenizer", models / "lm", recipe.seed, recipe.lm
    )
    print(f"language model: loss {metrics['loss']:.3f}", flush=True)

    for folder in models.iterdir():
        (folder / "README.md").write_text(CARD, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser("python -m sample.make", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=SAMPLE)
    words = parser.parse_args()
    torch.set_num_threads(1)  # steps are so small that a second thread waits more than it works
    make_sample(words.out, Recipe(seed=words.seed))


if __name__ == "__main__":
    main()
