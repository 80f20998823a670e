"""Stage `base_retriever`: an untuned dual encoder (REPLUG §3.1), from a folder or from the Hub."""

from functools import partial
from pathlib import Path

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.lm.model_files import check_pinned
from pipelines.methods import Method
from pipelines.params import params
from pipelines.params.param_types import RetrieverName, Section
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.modules import Modules
from pipelines.retrieval.tower import Tower
from pipelines.storage.atomic import atomic
from pipelines.work import stage

METRICS = Path("data/metrics")


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    retriever: dict[RetrieverName, params.Retriever]


def copy_pretrained(retriever: params.Retriever, out: Path) -> stage.Metrics:
    """Save to `out`, a folder with the retriever's name, the encoder that params.yaml names.

    It is read from `path`, and its query tower from `query_path`, if that is set. Raises
    LongtailError if `path` or a Hub model's revision isn't set, or nothing can be loaded.
    """
    section = f"retriever.{out.name}"
    check_pinned(f"{section}.path", retriever.path, retriever.revision)
    if retriever.query_path:
        check_pinned(f"{section}.query_path", retriever.query_path, retriever.query_revision)
    assert retriever.path is not None, "check_pinned raises"

    open_tower = partial(Tower, max_tokens=retriever.max_tokens)
    documents = open_tower(retriever.path, retriever.revision)
    _check_modules(retriever, documents.modules, section, retriever.path)
    queries = documents
    if retriever.query_path:
        queries = open_tower(retriever.query_path, retriever.query_revision)
        _check_modules(retriever, queries.modules, section, retriever.query_path)

    encoder = Encoder(documents, queries, retriever)
    with atomic(out) as folder:
        encoder.save(folder)
    parameters = sum(weight.numel() for weight in encoder.parameters())
    return {"parameters": float(parameters)}


def _check_modules(retriever: params.Retriever, modules: Modules, section: str, path: str) -> None:
    """Raise LongtailError where pooling or similarity differ from what the folder at `path` says.

    Prints which of the encoder's prompts are not used.
    """
    similarity = "cosine" if modules.normalized else None
    for key, needed in (("pooling", modules.pooling), ("similarity", similarity)):
        value = getattr(retriever, key)
        if needed not in (None, value):
            raise LongtailError(
                f"params.yaml: {section}.{key} is {value}, and {path} has {needed}; set {key}: "
                f"{needed}"
            )

    prompts = {"query_prefix": modules.query, "document": modules.document}
    for key, prompt in prompts.items():
        beginning = getattr(retriever, key).partition("{")[0]
        if prompt not in (None, beginning):
            print(
                f"warning: {section}.{key} begins with {beginning!r}, not with the encoder's "
                f"prompt {prompt!r}"
            )


def main() -> None:
    name = stage.arguments(__doc__, retriever="one of params.yaml's retrievers").retriever

    out = methods.encoder_folder(Method("dense", name))

    def work(settings: Settings) -> stage.Metrics:
        return copy_pretrained(settings.retriever[name], out)

    metrics = METRICS / f"base_retriever_{name}.json"
    stage.run(f"base_retriever@{name}", Settings, work, out=str(out), metrics=metrics)


if __name__ == "__main__":
    main()
