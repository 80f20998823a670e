"""One side of the dual encoder (REPLUG §3.1): a BERT-like model and its tokenizer, in Hugging Face's layout."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from pipelines.errors import LongtailError
from pipelines.lm.ragged import Ragged

logging.disable_progress_bar()  # of loading weights, which takes no time


class Tower:
    """A model in fp32, and its tokenizer; `max_tokens` is what it reads of a text, special tokens included."""

    def __init__(self, path: str | Path, revision: str | None = None, *, max_tokens: int, device: str = "cpu") -> None:
        """`path` is a local folder or a Hub name; only safetensors are read, and no remote code.

        Raises LongtailError where nothing can be loaded, or weights are missing.
        """
        # on a CPU fused attention's backward pass is slow, and at 128 tokens its forward pass is no faster
        attention = {"attn_implementation": "eager"} if device == "cpu" else {}
        self.model = _model(path, revision, attention).to(device)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, revision=revision, trust_remote_code=False)
            fast = self.tokenizer.backend_tokenizer
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise LongtailError(f"{path}: no fast tokenizer could be loaded: {_line(error)}") from None
        self.device, self.dim, self.pad = device, self.model.config.hidden_size, self.tokenizer.pad_token_id or 0
        self.max_tokens = min(max_tokens, _positions(self.model, max_tokens), self.tokenizer.model_max_length)
        self._fast = tokenizers.Tokenizer.from_str(fast.to_str())  # a copy: what is set here is not saved
        self._fast.encode_special_tokens = self.tokenizer.split_special_tokens
        self._fast.no_padding()
        self._fast.enable_truncation(self.max_tokens)

    def tokens(self, texts: Sequence[str]) -> Ragged:
        """The texts' tokens, the first `max_tokens` of each; a padding token where a text has none at all."""
        encoded = self._fast.encode_batch_fast(list(texts))
        return Ragged.of([one.ids or [self.pad] for one in encoded])

    def hidden(self, ids: np.ndarray, real: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states (n, tokens, dim), fp32, of token ids (n, tokens); and `real` as a mask of 0 and 1."""
        mask = torch.from_numpy(real.astype(np.int64)).to(self.device)
        states = self.model(input_ids=torch.from_numpy(ids).to(self.device), attention_mask=mask).last_hidden_state
        return states.float(), mask

    def save(self, folder: Path) -> None:
        """A Hugging Face folder that AutoModel and AutoTokenizer load."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _model(path: str | Path, revision: str | None, extra: dict) -> PreTrainedModel:
    """The model, ready for inference, without a pooling head: one is never used, and often made up at random."""
    if isinstance(path, Path) and not (path / "config.json").is_file():
        raise LongtailError(f"{path}: no config.json, expected an encoder in Hugging Face's layout")
    pinned = {"revision": revision, "trust_remote_code": False}
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # of weights that are not needed; those missing are an error below
    try:
        config = AutoConfig.from_pretrained(path, **pinned)
        kind = _kind(path, config)
        if "add_pooling_layer" in inspect.signature(kind).parameters:
            extra = extra | {"add_pooling_layer": False}
        model, loaded = kind.from_pretrained(
            path, **pinned, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **extra
        )
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        raise LongtailError(f"{path}: not an encoder in safetensors: {_line(error)}") from None
    finally:
        logging.set_verbosity(verbosity)
    if missing := sorted(loaded["missing_keys"]):  # transformers makes them up at random, and only warns
        raise LongtailError(
            f"{path}: {len(missing)} weights of {kind.__name__} are missing ({missing[0]} first), expected a whole "
            "encoder; is config.json that of another model?"
        )
    return (_bert_of_dpr(path, model, extra) if config.model_type == "dpr" else model).eval()


def _kind(path: str | Path, config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class to load: DPR's two towers keep their weights under different names, and AutoModel knows only one."""
    if config.model_type != "dpr":
        if config.is_encoder_decoder:
            raise LongtailError(f"{path}: {config.model_type} has a decoder, expected a BERT-like encoder")
        return AutoModel._model_mapping[type(config)]
    from transformers import DPRContextEncoder, DPRQuestionEncoder

    towers = {kind.__name__: kind for kind in (DPRContextEncoder, DPRQuestionEncoder)}
    named = (config.architectures or ["no architecture"])[0]
    if named not in towers:
        raise LongtailError(f"{path}: config.json says {named}, expected one of DPR's encoders: {', '.join(towers)}")
    return towers[named]


def _bert_of_dpr(path: str | Path, model: PreTrainedModel, extra: dict) -> PreTrainedModel:
    """The BERT inside one of DPR's towers, whose embedding is the first token's state."""
    if model.config.projection_dim:
        raise LongtailError(f"{path}: a DPR encoder with a projection, expected projection_dim 0 as in those published")
    (encoder,) = model.children()
    known = BertConfig().to_dict().keys() - {"model_type", "architectures", "transformers_version", "dtype"}
    config = BertConfig(**{name: value for name, value in model.config.to_dict().items() if name in known})
    config._attn_implementation = extra.get("attn_implementation", "sdpa")
    bert = BertModel(config, add_pooling_layer=False)
    bert.load_state_dict(encoder.bert_model.state_dict())
    return bert


def _positions(model: PreTrainedModel, otherwise: int) -> int:
    """Tokens that the model has positions for; RoBERTa and its kin count theirs from behind the padding's."""
    count = getattr(model.config, "max_position_embeddings", None) or otherwise
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return count if padding is None else count - padding - 1


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
