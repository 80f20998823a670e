"""Stage `base_reranker`: a pinned cross-encoder, which reorders a retriever's best documents."""

from pathlib import Path

from transformers import AutoConfig, AutoModelForSequenceClassification

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.lm.model_files import save_pretrained
from pipelines.params import params
from pipelines.params.param_types import Section
from pipelines.work import stage


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    reranker: params.Reranker


def save_reranker(settings: Settings) -> stage.Metrics:
    """Save the cross-encoder at `reranker.path`.

    Raises LongtailError unless it gives one or two logits.
    """
    reranker = settings.reranker
    out = Path("data") / methods.RERANKER
    figures = save_pretrained(
        AutoModelForSequenceClassification, "reranker", reranker.path, reranker.revision, out
    )
    logits = AutoConfig.from_pretrained(out, trust_remote_code=False).num_labels
    if logits > 2:
        problem = f"gives {logits} logits, expected a cross-encoder with one or two"
        raise LongtailError(f"{reranker.path}: {problem}")
    return figures


if __name__ == "__main__":
    out = Path("data") / methods.RERANKER
    stage.run(f"base_reranker@{out.name}", Settings, save_reranker, out=str(out))
