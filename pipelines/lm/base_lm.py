"""Stage `base_lm`: make a language model's folder.

The model is trained from scratch, a pretrained one, or one on a server, of which the folder has the
name and the tokenizer.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pipelines.errors import LongtailError
from pipelines.params.param_types import LMName, Section
from pipelines.params.params import Parts
from pipelines.params.params_models import LM
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage, threads

DATA = Path("data")
TOKENIZER = Path("data/models/tokenizer")
OUT = Path("data/models/lm")


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    lm: dict[LMName, LM]
    lm_text: Literal["raw/c4", "corpus"]
    parts: Parts


def make_lm(settings: Settings, name: str) -> stage.Metrics:
    """Make the folder of the language model called `name` in the params."""
    lm = settings.lm[name]
    out = OUT / name
    if lm.source == "http":
        return name_served(lm, out)
    if lm.source == "train":
        return train_on_text(
            text=DATA / settings.lm_text,
            tokenizer=TOKENIZER,
            out=out,
            seed=settings.seed,
            lm=lm,
            corpora=settings.parts.corpora,
        )
    from transformers import AutoModelForCausalLM

    from pipelines.lm.model_files import save_pretrained

    return save_pretrained(AutoModelForCausalLM, f"lm.{name}", lm.path, lm.revision, out)


def train_on_text(
    text: Path, tokenizer: Path, out: Path, seed: int, lm: LM, corpora: Sequence[str] = ()
) -> stage.Metrics:
    """Train a model on the folder `text`, and save it to `out`; returns train_lm's metrics.

    The folder is C4's, or the corpora's. Raises LongtailError where there is no text, or
    `lm.training` is null.
    """
    from pipelines.lm import train_lm, training_texts
    from pipelines.storage.work_store import WorkStore

    if lm.training is None:
        raise LongtailError(
            f"params.yaml: lm.{out.name}.training is null, expected its settings where source is "
            "train"
        )
    threads.use(1)  # steps are so small that a second thread waits more than it works
    if text.name == "c4":
        documents = training_texts.read_c4(text)
    else:
        documents = training_texts.read_corpora(text, corpora)

    stage_name = f"base_lm@{out.name}"
    with atomic(out) as folder:
        metrics = train_lm.train_language_model(
            documents=documents,
            tokenizer=tokenizer,
            folder=folder,
            seed=seed,
            settings=lm.training,
            stage=stage_name,
        )
    WorkStore().forget(stage_name)
    return metrics


def name_served(lm: LM, out: Path) -> stage.Metrics:
    """Save a served model's URL and name to the folder `out`, with its tokenizer if it has one."""
    from pipelines.corpus.tokenizer import copy_pretrained

    with atomic(out) as folder:
        if lm.http.tokenizer:
            copy_pretrained(f"lm.{out.name}", lm.http.tokenizer, lm.revision, folder)
        else:
            folder.mkdir()
        write_json(folder / "served.json", {"url": lm.http.url, "model": lm.path})
    return {}


if __name__ == "__main__":
    name = stage.arguments(__doc__, name="a name from lms in params.yaml").name

    def work(settings: Settings) -> stage.Metrics:
        return make_lm(settings, name)

    metrics = Path(f"data/metrics/base_lm_{name}.json")
    stage.run(f"base_lm@{name}", Settings, work, out=str(OUT / name), metrics=metrics)
