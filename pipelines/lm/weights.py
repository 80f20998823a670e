"""Load a causal language model into memory in fp32, bf16 or int8, with faster layers of the same formulas."""

import json
from pathlib import Path

import psutil
import torch
import transformers
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from pipelines.errors import LongtailError
from pipelines.lm.model_files import check_complete, count_parameters, load_pretrained
from pipelines.storage import shards

KEPT = shards.SCRATCH / "trials"  # how far models in bf16 or int8 are from fp32
TOLERANCE = 0.05  # nats: largest mean absolute difference of a token's log-prob from fp32's
MIN_ROWS = 64  # torch's default multiplies fewer rows faster than oneDNN, as in decoding
TOKENS = 64  # the most tokens of TEXT that are compared
TEXT = """The harbour master wrote down 14 ships on the first of May 1887, three of them from the south with salt and
cork. Nobody in the town had seen so many at once. "Where will they all lie?" asked Anna, who kept the inn by the
bridge. A year later the new pier was built of granite, 120 metres long, and the old one was left to the gulls."""


def load(folder: Path, tokenizer, dtype: str, device: str) -> PreTrainedModel:
    """Load the model in `folder` for inference, over all GPUs where there are several.

    `dtype` is fp32, bf16 (fp16 on a GPU without it) or int8 (LLM.int8, the rest in fp16). If fp32 fits into memory,
    others are compared with it, once, and refused with a LongtailError where they differ by more than TOLERANCE.
    """
    if dtype == "bf16" and device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        dtype = "fp16"
    if dtype == "fp32":
        return _open(folder, dtype, device)
    kept = KEPT / f"{shards.key_of(Path(folder), dtype, device, torch.__version__, transformers.__version__)}.json"
    fp32_bytes, expected = 4 * (count_parameters(folder) or 0), None
    if kept.is_file():
        difference = json.loads(kept.read_text(encoding="utf-8"))
    elif fp32_bytes < 0.8 * psutil.virtual_memory().available:
        expected = _log_probs(_open(folder, "fp32", "cpu"), tokenizer)
    else:
        takes = f"{fp32_bytes / 1e9:.0f} GB"
        print(f"warning: {folder}: {dtype} not compared with fp32, which takes {takes}", flush=True)
        return _open(folder, dtype, device)
    model = _open(folder, dtype, device)
    if expected is not None:
        difference = float((_log_probs(model, tokenizer) - expected).abs().mean())
    if not difference <= TOLERANCE:
        raise LongtailError(
            f"{folder}: log-probs in {dtype} are {difference:.3f} nats a token from those in fp32, expected "
            f"{TOLERANCE} at most; set its dtype to fp32"
        )
    if expected is not None and shards.SCRATCH.is_dir():  # in a project
        shards.write_json(kept, difference)
    print(f"{folder}: log-probs in {dtype} are {difference:.4f} nats a token from those in fp32", flush=True)
    return model


def _open(folder: Path, dtype: str, device: str) -> PreTrainedModel:
    several_gpus = device == "cuda" and torch.cuda.device_count() > 1
    options = {"device_map": "auto" if several_gpus else device} if several_gpus or dtype == "int8" else {}
    if dtype == "int8":
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    options |= {"dtype": {"fp32": torch.float32, "bf16": torch.bfloat16}.get(dtype, torch.float16)}
    model, loading_info = load_pretrained(AutoModelForCausalLM, folder, None, use_safetensors=True, **options)
    if dtype != "int8":  # int8 adds tensors that no checkpoint has
        check_complete(folder, model, loading_info)
    model = model.eval().requires_grad_(False)
    if "device_map" not in options:
        model = model.to(device)
    _replace_slow_layers(model)
    return model


@torch.inference_mode()
def _log_probs(model: PreTrainedModel, tokenizer) -> torch.Tensor:
    """log p of each token of TEXT but the first, (tokens - 1,) float32."""
    ids = torch.tensor([tokenizer(TEXT, verbose=False)["input_ids"][:TOKENS]], device=model.device)
    log_probs = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), dim=-1)
    return log_probs.gather(1, ids[0, 1:, None].to(log_probs.device)).squeeze(1).cpu()


class _OneDNNLinear(nn.Module):
    """x W^T + b in fp32 by oneDNN: as precise as torch's default, MKL, and twice as fast on AMD's processors."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias  # (outputs, inputs), (outputs,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() < MIN_ROWS * x.shape[-1]:
            return functional.linear(x, self.weight, self.bias)
        return functional.linear(x.to_mkldnn(), self.weight, self.bias).to_dense()


def _replace_slow_layers(model: nn.Module) -> None:
    """Replace layers of `model` in place: fp32 linear layers where MKL is slow, and GPT-2's activation anywhere."""
    processor = torch.cpu.get_capabilities()  # oneDNN is faster than MKL on x86 processors, but for Intel's
    x86 = torch.backends.mkldnn.is_available() and processor.get("architecture") == "x86_64"
    slow = x86 and "Intel" not in processor.get("cpu_name", "")
    for module in list(model.modules()):
        for name, layer in module.named_children():
            weight = getattr(layer, "weight", None)
            in_fp32 = isinstance(weight, torch.Tensor) and weight.device.type == "cpu" and weight.dtype == torch.float32
            if type(layer) is NewGELUActivation:  # it passes over its input eight times
                setattr(module, name, nn.GELU(approximate="tanh"))
            elif slow and in_fp32 and type(layer) is nn.Linear:
                setattr(module, name, _OneDNNLinear(weight, layer.bias))
            elif slow and in_fp32 and type(layer) is Conv1D:
                transposed = nn.Parameter(weight.T.contiguous(), requires_grad=False)
                setattr(module, name, _OneDNNLinear(transposed, layer.bias))
