"""The small files that sentence-transformers wants beside a Hugging Face folder, so that it embeds as we do."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines import params

# the library's names of old, which every version of it understands
MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}


def write(folder: Path, retriever: params.Retriever, dim: int, max_tokens: int) -> None:
    """Pooling, length, prefixes and similarity, for `SentenceTransformer(folder)` with encode_query, encode_document.

    The folder's model embeds both sides into `dim` dimensions and reads `max_tokens` tokens of a text.
    """
    chosen = MODULES if retriever.similarity == "cosine" else dict(list(MODULES.items())[:2])
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(chosen.items())
    ]
    pooling = {f"pooling_mode_{mode}": mode.startswith(retriever.pooling) for mode in ("cls_token", "mean_tokens")}
    files = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": max_tokens, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": retriever.query_prefix, "document": retriever.document_prefix},
            "default_prompt_name": None,
            "similarity_fn_name": retriever.similarity,
        },
        "1_Pooling/config.json": {"word_embedding_dimension": dim, **pooling},
    }
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
