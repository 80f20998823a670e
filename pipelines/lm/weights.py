"""Load a causal language model's weights in fp32, bf16 or int8.

The last two are compared with fp32.
"""

from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.utils import logging

from pipelines.lm.model_files import check_complete, count_parameters, load_pretrained
from pipelines.lm.shortcuts import TEXT, TOLERANCE
from pipelines.work import devices
from pipelines.work.devices import has_bf16

logging.disable_progress_bar()  # loading weights takes no time
# int8 keeps some weights in fp16.
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.float16,
}
COMPARED_TOKENS = 64  # the most tokens of TEXT that are compared
# Share of the device's memory that the weights in fp32 may take. Not of the free memory: whether
# formats are compared does not depend on what else runs.
MEMORY_SHARE = 0.6
BYTES_IN_FP32 = 4  # of a weight


class Loaded(NamedTuple):
    """A model that is open, and how far it is from fp32."""

    model: PreTrainedModel
    # mean absolute difference of a token's log-prob, in nats; 0 for fp32, None: not compared
    difference: float | None


def load(folder: Path, tokenizer, dtype: str, device: str) -> Loaded:
    """Load the model in `folder` for inference, over all GPUs where there are several.

    `dtype` is fp32, bf16 (fp16 on a GPU without it), int8 (LLM.int8, the rest in fp16), or auto:
    bf16 where the device multiplies it fast and log-probs differ from fp32's by at most TOLERANCE,
    otherwise fp32. Other formats are compared with fp32, and used as they are.
    """
    number_format = _number_format(dtype, device)
    if number_format == "fp32":
        return Loaded(_open(folder, "fp32", device), 0.0)

    loaded = _compare(folder, tokenizer, number_format, device)
    if loaded.difference is None:
        print(
            f"warning: {folder}: {number_format} not compared with fp32, whose weights do not fit "
            "into memory"
        )
        return loaded
    message = (
        f"{folder}: log-probs in {number_format} are {loaded.difference:.4f} nats a token from "
        "those in fp32"
    )
    if loaded.difference <= TOLERANCE:
        print(message)
        return loaded
    if dtype == "auto":
        print(f"{message}, more than {TOLERANCE}: fp32 is used")
        return Loaded(_open(folder, "fp32", device), 0.0)
    print(f"warning: {message}, more than {TOLERANCE}; dtype auto would use fp32")
    return loaded


def _number_format(dtype: str, device: str) -> str:
    """The format that a dtype of the params asks for on a device."""
    if dtype == "auto":
        return "bf16" if has_bf16(device) else "fp32"
    if dtype == "bf16" and device == "cuda" and not has_bf16(device):
        return "fp16"
    return dtype


def _compare(folder: Path, tokenizer, number_format: str, device: str) -> Loaded:
    """The model in a number format, with its difference from fp32."""
    memory = devices.total_memory(device) or psutil.virtual_memory().total
    if BYTES_IN_FP32 * (count_parameters(folder) or 0) > MEMORY_SHARE * memory:
        return Loaded(_open(folder, number_format, device), None)

    expected = _log_probs(_open(folder, "fp32", device), tokenizer)
    model = _open(folder, number_format, device)
    difference = float((_log_probs(model, tokenizer) - expected).abs().mean())
    return Loaded(model, difference)


def _open(folder: Path, dtype: str, device: str) -> PreTrainedModel:
    """The model in a number format, without a comparison."""
    several_gpus = device == "cuda" and torch.cuda.device_count() > 1
    options: dict[str, Any] = {}
    if several_gpus:
        options["device_map"] = "auto"
    elif dtype == "int8":
        options["device_map"] = device
    if dtype == "int8":
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    options["dtype"] = DTYPES[dtype]

    model, loading_info = load_pretrained(
        AutoModelForCausalLM, folder, None, use_safetensors=True, **options
    )
    if dtype != "int8":  # int8 adds tensors that no checkpoint has
        check_complete(folder, model, loading_info)
    model = model.eval().requires_grad_(False)
    if "device_map" not in options:
        model = model.to(device)
    _replace_slow_activations(model)
    return model


@torch.inference_mode()
def _log_probs(model: PreTrainedModel, tokenizer) -> torch.Tensor:
    """log p of each token of TEXT but the first, (tokens - 1,) float32."""
    ids = tokenizer(TEXT, verbose=False)["input_ids"][:COMPARED_TOKENS]
    inputs = torch.tensor([ids], device=model.device)
    logits = model(input_ids=inputs).logits[0, :-1]
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    targets = inputs[0, 1:, None].to(log_probs.device)
    return log_probs.gather(1, targets).squeeze(1).cpu()


def _replace_slow_activations(model: nn.Module) -> None:
    """Replace GPT-2's activation in `model`, in place: it passes over its input eight times."""
    for module in list(model.modules()):
        for name, layer in module.named_children():
            if type(layer) is NewGELUActivation:
                setattr(module, name, nn.GELU(approximate="tanh"))
