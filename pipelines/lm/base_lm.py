"""Stage `base_lm`: make a language model's folder.

The model is one in a folder or on the Hub, or one on a server, of which the folder has the name and
the tokenizer.
"""

from pathlib import Path

from pipelines.params.param_types import LMName, Section
from pipelines.params.params_models import LM
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

OUT = Path("data/models/lm")


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    lm: dict[LMName, LM]


def make_lm(settings: Settings, name: str) -> stage.Metrics:
    """Make the folder of the language model called `name` in the params."""
    lm = settings.lm[name]
    out = OUT / name
    if lm.http:
        return name_served(lm, out)
    from transformers import AutoModelForCausalLM

    from pipelines.lm.model_files import save_pretrained

    return save_pretrained(AutoModelForCausalLM, f"lm.{name}", lm.path, lm.revision, out)


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
