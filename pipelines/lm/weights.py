"""A causal language model's weights in memory: number format, devices, and what the format costs in precision."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pipelines.errors import LongtailError
from pipelines.lm.pretrained import check_complete
from pipelines.lm.processor import quicken

TOLERANCE = 0.05  # nats: mean absolute difference of a token's log-prob from fp32's
TOKENS = 64  # of TEXT at most
TEXT = """The harbour master wrote down 14 ships on the first of May 1887, three of them from the south with salt and
cork. Nobody in the town had seen so many at once. "Where will they all lie?" asked Anna, who kept the inn by the
bridge. A year later the new pier was built of granite, 120 metres long, and the old one was left to the gulls."""


def load(folder: Path, tokenizer, dtype: str, device: str) -> PreTrainedModel:
    """The model in `folder`, ready to read: `dtype` fp32, bf16, or int8 (products by LLM.int8, the rest in fp16); over
    all GPUs where there are several.

    Formats other than fp32 are compared with fp32 on a fixed text, where the memory has room for it; what was found,
    or that it was not compared, is printed. Raises LongtailError where they differ by more than TOLERANCE.
    """
    expected = None
    if dtype != "fp32":
        needed = 4 * _parameters(folder)
        if needed < 0.8 * psutil.virtual_memory().available:
            expected = _log_probs(_open(folder, "fp32", "cpu"), tokenizer)
        else:
            print(f"warning: {folder}: {dtype} not compared with fp32, which takes {needed / 1e9:.0f} GB", flush=True)
    model = _open(folder, dtype, device)
    if expected is not None:
        difference = float((_log_probs(model, tokenizer) - expected).abs().mean())
        if not difference <= TOLERANCE:
            raise LongtailError(
                f"{folder}: log-probs in {dtype} are {difference:.3f} nats a token from those in fp32, expected "
                f"{TOLERANCE} at most; set its dtype to fp32"
            )
        print(f"{folder}: log-probs in {dtype} are {difference:.4f} nats a token from those in fp32", flush=True)
    return model


def _open(folder: Path, dtype: str, device: str) -> PreTrainedModel:
    several = device == "cuda" and torch.cuda.device_count() > 1
    extra = {"device_map": "auto" if several else device} if several or dtype == "int8" else {}
    needed = ["accelerate"] * bool(extra) + ["bitsandbytes"] * (dtype == "int8")
    if missing := [name for name in needed if not find_spec(name)]:
        what = "int8" if dtype == "int8" else "more than one GPU"
        raise LongtailError(f"{folder}: {what} needs {missing[0]}; pip install 'longtail[large]'")
    if dtype == "int8":
        from transformers import BitsAndBytesConfig

        extra["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float16}[dtype]
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            folder, dtype=kind, use_safetensors=True, output_loading_info=True, **extra
        )
    except (OSError, ValueError) as error:
        raise LongtailError(
            f"{folder}: not a causal language model in safetensors: {' '.join(str(error).split())}"
        ) from None
    if dtype != "int8":  # whose own numbers no checkpoint has
        check_complete(folder, model, found)
    model = model.eval().requires_grad_(False) if extra else model.eval().requires_grad_(False).to(device)
    quicken(model)
    return model


def _parameters(folder: Path) -> int:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).num_parameters()


@torch.inference_mode()
def _log_probs(model: PreTrainedModel, tokenizer) -> torch.Tensor:
    """log p of each token of TEXT but the first, (tokens - 1,) float32."""
    ids = torch.tensor([tokenizer(TEXT, verbose=False)["input_ids"][:TOKENS]], device=model.device)
    log_probs = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), dim=-1)
    return log_probs.gather(1, ids[0, 1:, None].to(log_probs.device)).squeeze(1).cpu()
