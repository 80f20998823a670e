"""The tuned retriever as MLflow loads it: `mlflow.pyfunc.load_model("models:/longtail-retriever@champion")`.

MLflow imports this module by its name, so Longtail has to be installed. The model's folder has no code and no pickles.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.params import params
from pipelines.retrieval.encoder import Encoder

if TYPE_CHECKING:
    import pandas as pd


class Vectors:
    """A model with MLflow's interface, whose predictions are vectors of texts."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def predict(self, texts: pd.DataFrame, params: Mapping[str, Any] | None = None) -> np.ndarray:
        """Vectors (n, dim) float32 of the only column's n texts: documents in their template, or queries."""
        embed = self._encoder.embed_queries if (params or {}).get("queries") else self._encoder.embed
        return embed(texts.iloc[:, 0].tolist())


def _load_pyfunc(folder: str, settings: Mapping[str, Any]) -> Vectors:
    """The encoder in a version's folder, on one thread of the CPU; `settings` has the section `retriever`'s values.

    MLflow's name for a loader. Raises LongtailError if the folder holds no encoder.
    """
    compute = params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu")
    return Vectors(Encoder.open(Path(folder), params.Retriever(**settings), compute))
