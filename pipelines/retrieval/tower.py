"""One side of the dual encoder (REPLUG §3.1): a BERT-like model and its tokenizer, in Hugging Face's layout."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.dpr import DPRContextEncoder, DPRQuestionEncoder
from transformers.utils import logging

from pipelines.errors import LongtailError
from pipelines.lm.model_files import (
    UNREADABLE,
    check_complete,
    check_readable,
    load_pretrained,
    load_tokenizer,
)
from pipelines.lm.ragged import Ragged
from pipelines.retrieval.modules import read_modules, reader

logging.disable_progress_bar()  # loading weights takes no time
logging.set_verbosity_error()  # no warnings about superfluous weights; missing ones are an error below


class Tower:
    """A model in fp32 and its tokenizer.

    It reads `max_tokens` tokens of a text, special tokens included; fewer where the model or its folder has fewer.
    """

    def __init__(
        self, path: str | Path, revision: str | None = None, *, max_tokens: int, device: str = "cpu"
    ) -> None:
        """Load a local folder or a Hub name: only plain tensors, never code. LongtailError if that fails."""
        try:
            self.modules = read_modules(reader(path, revision))
        except (LongtailError, OSError) as error:
            raise LongtailError(f"{path}: {_one_line(error)}") from None
        place = {"revision": revision, "subfolder": self.modules.folder}
        self.model = _load_model(path, **place).to(device)
        self.tokenizer = load_tokenizer(path, **place)
        if (fast := getattr(self.tokenizer, "backend_tokenizer", None)) is None:
            raise LongtailError(
                f"{path}: {type(self.tokenizer).__name__} is no fast tokenizer; expected tokenizer.json"
            )
        if self.modules.lower:
            others = [] if fast.normalizer is None else [fast.normalizer]
            fast.normalizer = tokenizers.normalizers.Sequence(
                [tokenizers.normalizers.Lowercase(), *others]
            )
        self.device, self.dim, self.pad = (
            device,
            self.model.config.hidden_size,
            self.tokenizer.pad_token_id or 0,
        )
        longest = self.modules.max_tokens or self.tokenizer.model_max_length
        self.max_tokens = min(max_tokens, max_positions(self.model, max_tokens), longest)
        self._fast = tokenizers.Tokenizer.from_str(
            fast.to_str()
        )  # a copy, so that truncation is not saved
        self._fast.encode_special_tokens = self.tokenizer.split_special_tokens
        self._fast.no_padding()
        self._fast.enable_truncation(self.max_tokens, direction=self.tokenizer.truncation_side)

    def tokens(self, texts: Sequence[str]) -> Ragged:
        """The first (or last, as the tokenizer says) `max_tokens` tokens of each text; padding for one without any."""
        return Ragged.of(
            [encoding.ids or [self.pad] for encoding in self._fast.encode_batch_fast(list(texts))]
        )

    def hidden(self, ids: np.ndarray, real: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states (n, tokens, dim) fp32 of token ids (n, tokens), and `real` as a mask of 0 and 1."""
        mask = torch.from_numpy(real.astype(np.int64)).to(self.device)
        states = self.model(
            input_ids=torch.from_numpy(ids).to(self.device), attention_mask=mask
        ).last_hidden_state
        return states.float(), mask

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder that AutoModel and AutoTokenizer load."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _load_model(path: str | Path, revision: str | None, subfolder: str) -> PreTrainedModel:
    """The model, ready for inference, without a pooling head, which is never used and often initialised at random."""
    if isinstance(path, Path) and not (path / subfolder / "config.json").is_file():
        raise LongtailError(f"{path}: no config.json, expected an encoder in Hugging Face's layout")
    check_readable(path, revision, subfolder)
    try:
        config = AutoConfig.from_pretrained(
            path, revision=revision, subfolder=subfolder, trust_remote_code=False
        )
        model_class = _model_class(path, config)
        pooled = "add_pooling_layer" in inspect.signature(model_class).parameters
        options = {"add_pooling_layer": False} if pooled else {}
        model, loaded = load_pretrained(
            model_class, path, revision, subfolder=subfolder, dtype=torch.float32, **options
        )
    except (*UNREADABLE, StrictDataclassError) as error:
        raise LongtailError(f"{path}: not an encoder: {_one_line(error)}") from None
    check_complete(path, model, loaded)
    return (_bert_of_dpr(path, model) if config.model_type == "dpr" else model).eval()


def _model_class(path: str | Path, config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class to load: DPR's two towers name their weights differently, and AutoModel knows only one of them."""
    if config.model_type != "dpr":
        model_class = AutoModel._model_mapping[type(config)]
        reads_texts = "input_ids" in inspect.signature(model_class.forward).parameters
        if config.is_encoder_decoder or not reads_texts or not hasattr(config, "hidden_size"):
            raise LongtailError(
                f"{path}: {config.model_type} is no BERT-like encoder of texts alone, expected one"
            )
        return model_class
    classes = {cls.__name__: cls for cls in (DPRContextEncoder, DPRQuestionEncoder)}
    name = (config.architectures or ["no architecture"])[0]
    if name not in classes:
        raise LongtailError(
            f"{path}: config.json says {name}, expected one of DPR's encoders: {', '.join(classes)}"
        )
    return classes[name]


def _bert_of_dpr(path: str | Path, model: PreTrainedModel) -> PreTrainedModel:
    """The BERT inside one of DPR's towers; the first token's state is the embedding."""
    if model.config.projection_dim:
        raise LongtailError(
            f"{path}: a DPR encoder with a projection, expected projection_dim 0 as in those published"
        )
    (encoder,) = model.children()
    known = BertConfig().to_dict().keys() - {
        "model_type",
        "architectures",
        "transformers_version",
        "dtype",
    }
    config = BertConfig(
        **{name: value for name, value in model.config.to_dict().items() if name in known}
    )
    config._attn_implementation = "sdpa"
    bert = BertModel(config, add_pooling_layer=False)
    bert.load_state_dict(encoder.bert_model.state_dict())
    return bert


def max_positions(model: PreTrainedModel, default: int) -> int:
    """The number of tokens that the model has positions for; RoBERTa's start after the padding token's number."""
    count = getattr(model.config, "max_position_embeddings", None) or default
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return count if padding is None else count - padding - 1


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
