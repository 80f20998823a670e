"""One side of the dual encoder (REPLUG §3.1): a BERT-like model and its tokenizer.

Both are read and saved in Hugging Face's layout.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
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
    padding_token,
)
from pipelines.lm.ragged import Ragged
from pipelines.retrieval.modules import read_modules, reader
from pipelines.work import devices

# Settings of config.json -> the value with which a model reads texts in both directions.
BOTH_DIRECTIONS = {
    "is_causal": False,
    "causal": False,
    "bidirectional": True,
    "is_bidirectional": True,
    "use_bidirectional_attention": True,
}
WINDOW = 8192  # texts tokenised and sorted by length at once
logging.disable_progress_bar()  # loading weights takes no time
logging.set_verbosity_error()  # superfluous weights are ignored; missing ones are an error below


class Tower:
    """A model, in fp32 when it is opened, and its tokenizer.

    It reads `max_tokens` tokens of a text, special tokens included; fewer where the model or its
    folder has fewer.
    """

    def __init__(
        self, path: str | Path, revision: str | None = None, *, max_tokens: int, device: str = "cpu"
    ) -> None:
        """Load a local folder or a Hub name: only plain tensors, never code.

        Raises LongtailError if that fails.
        """
        try:
            self.modules = read_modules(reader(path, revision))
        except (LongtailError, OSError) as error:
            raise LongtailError(f"{path}: {_one_line(error)}") from None
        model = _load_model(path, revision, self.modules.folder)
        self.model = model.to(device)  # type: ignore[arg-type]
        self.device = device
        self.dim = self.model.config.hidden_size

        self.tokenizer = load_tokenizer(path, revision=revision, subfolder=self.modules.folder)
        self.pad = padding_token(path, self.model, self.tokenizer)
        fast = getattr(self.tokenizer, "backend_tokenizer", None)
        if fast is None:
            tokenizer_class = type(self.tokenizer).__name__
            raise LongtailError(
                f"{path}: {tokenizer_class} is no fast tokenizer; expected tokenizer.json"
            )
        if self.modules.lower:
            normalizers = [tokenizers.normalizers.Lowercase()]
            if fast.normalizer is not None:
                normalizers.append(fast.normalizer)
            fast.normalizer = tokenizers.normalizers.Sequence(normalizers)

        most_positions = max_positions(self.model, max_tokens)
        most_of_folder = self.modules.max_tokens or self.tokenizer.model_max_length
        self.max_tokens = min(max_tokens, most_positions, most_of_folder)
        self._fast = self._cutting_tokenizer()

    def cut_to(self, max_tokens: int) -> Tower:
        """This tower, with the same weights, as it reads at most `max_tokens` tokens of a text."""
        tower = copy.copy(self)
        tower.max_tokens = min(max_tokens, self.max_tokens)
        tower._fast = tower._cutting_tokenizer()
        return tower

    def _cutting_tokenizer(self) -> tokenizers.Tokenizer:
        """A copy of the tokenizer that cuts texts at `max_tokens`, which is not to be saved."""
        cutting = tokenizers.Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        cutting.encode_special_tokens = self.tokenizer.split_special_tokens
        cutting.no_padding()
        cutting.enable_truncation(self.max_tokens, direction=self.tokenizer.truncation_side)
        return cutting

    def tokens(self, texts: Sequence[str]) -> Ragged:
        """The first `max_tokens` tokens of each text, or the last where the tokenizer says so.

        A text without any token gets one of padding.
        """
        encodings = self._fast.encode_batch_fast(list(texts))
        return Ragged.of([encoding.ids or [self.pad] for encoding in encodings])

    def hidden(self, ids: np.ndarray, real: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states (n, tokens, dim) fp32 of token ids (n, tokens); and `real`, a mask."""
        input_ids = devices.to_device(ids, self.device)
        mask = devices.to_device(real.astype(np.int64), self.device)
        states = self.model(input_ids=input_ids, attention_mask=mask).last_hidden_state
        return states.float(), mask

    def in_bf16(self) -> Tower:
        """A copy of this tower with weights in bf16, for inference alone."""
        tower = copy.copy(self)
        tower.model = copy.deepcopy(self.model)
        # Buffers stay in fp32: the frequencies of rotary positions are among them.
        for weight in tower.model.parameters():
            weight.data = weight.data.to(torch.bfloat16)
        return tower

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder that AutoModel and AutoTokenizer load."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _load_model(path: str | Path, revision: str | None, subfolder: str) -> PreTrainedModel:
    """The model, ready for inference.

    It has no pooling head, which is never used and often initialised at random.
    """
    if isinstance(path, Path) and not (path / subfolder / "config.json").is_file():
        raise LongtailError(f"{path}: no config.json, expected an encoder in Hugging Face's layout")
    check_readable(path, revision, "AutoModel", subfolder)
    try:
        config = AutoConfig.from_pretrained(
            path, revision=revision, subfolder=subfolder, trust_remote_code=False
        )
        model_class = _model_class(path, config)
        options = {}
        if "add_pooling_layer" in inspect.signature(model_class).parameters:
            options["add_pooling_layer"] = False
        model, loaded = load_pretrained(
            model_class, path, revision, subfolder=subfolder, dtype=torch.float32, **options
        )
    except (*UNREADABLE, StrictDataclassError) as error:
        raise LongtailError(f"{path}: not an encoder: {_one_line(error)}") from None
    check_complete(path, model, loaded)
    if config.model_type == "dpr":
        model = _bert_of_dpr(path, model)
    model = model.eval()
    _check_direction(path, model)
    return model


def _model_class(path: str | Path, config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class to load.

    DPR's two towers name their weights differently, and AutoModel knows only one of them.
    """
    if config.model_type == "dpr":
        return _dpr_class(path, config)
    model_class: Any = AutoModel._model_mapping[type(config)]
    reads_texts = "input_ids" in inspect.signature(model_class.forward).parameters
    if config.is_encoder_decoder or not reads_texts or not hasattr(config, "hidden_size"):
        raise LongtailError(
            f"{path}: {config.model_type} is no BERT-like encoder of texts alone, expected one"
        )
    return model_class


def _dpr_class(path: str | Path, config: PreTrainedConfig) -> type[PreTrainedModel]:
    classes = {cls.__name__: cls for cls in (DPRContextEncoder, DPRQuestionEncoder)}
    architectures = config.architectures or ["no architecture"]
    name = architectures[0]
    if name not in classes:
        expected = ", ".join(classes)
        raise LongtailError(
            f"{path}: config.json says {name}, expected one of DPR's encoders: {expected}"
        )
    return classes[name]


def _bert_of_dpr(path: str | Path, model: PreTrainedModel) -> PreTrainedModel:
    """The BERT inside one of DPR's towers; the first token's state is the embedding."""
    if model.config.projection_dim:
        raise LongtailError(
            f"{path}: a DPR encoder with a projection, expected projection_dim 0 as in those "
            "published"
        )
    encoder: Any = next(model.children())
    not_of_bert = {"model_type", "architectures", "transformers_version", "dtype"}
    names = BertConfig().to_dict().keys() - not_of_bert
    values = model.config.to_dict()
    config = BertConfig(**{name: value for name, value in values.items() if name in names})
    config._attn_implementation = "sdpa"
    bert = BertModel(config, add_pooling_layer=False)
    bert.load_state_dict(encoder.bert_model.state_dict())
    return bert


def _check_direction(path: str | Path, model: PreTrainedModel) -> None:
    """Raise LongtailError for a model that reads from left to right, but should in both directions.

    config.json says so by a setting that transformers knows for other models alone, or by the name
    of an architecture that transformers lacks.
    """
    settings = model.config.to_dict()
    reasons = []
    for key, value in BOTH_DIRECTIONS.items():
        if key in settings and settings[key] in (value, "all"):
            reasons.append(f"{key}: {json.dumps(settings[key])}")
    for name in settings.get("architectures") or []:
        if not hasattr(transformers, name):
            reasons.append(f"the architecture {name}")
    if reasons and not _reads_both_ways(model):
        raise LongtailError(
            f"{path}: config.json says {reasons[0]}, but transformers' {type(model).__name__} "
            "reads texts from left to right; take an encoder that transformers has"
        )


@torch.inference_mode()
def _reads_both_ways(model: PreTrainedModel) -> bool:
    """Whether a token's state depends on the tokens after it."""
    texts = torch.tensor([[1, 2, 3], [1, 2, 4]]) % model.config.vocab_size
    try:
        states = model(input_ids=texts, attention_mask=torch.ones_like(texts)).last_hidden_state
    except (AttributeError, TypeError):  # it can't read as config.json says
        return False
    return not torch.allclose(states[0, 0], states[1, 0])


def max_positions(model: PreTrainedModel, default: int) -> int:
    """The number of tokens that the model has positions for.

    RoBERTa's positions start after the padding token's number.
    """
    count = getattr(model.config, "max_position_embeddings", None) or default
    embeddings = getattr(model, "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return count if padding is None else count - padding - 1


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
