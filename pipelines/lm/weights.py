"""Load a causal language model into memory in fp32, bf16 or int8, with faster layers of the same formulas.

What a model's trials found when it was first opened (see `load`, shortcuts.py and local.py) is kept for later openings.
A trial compares a model with itself. So it ends alike where all of these are the same: the model's files, its number
format, the device and its threads, the libraries, and the code of this folder. Results are kept by the hash of these,
in the project's scratch. A process outside of a project keeps none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import psutil
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from pipelines.errors import LongtailError
from pipelines.lm.model_files import UNREADABLE, check_complete, count_parameters
from pipelines.storage import shards

KEPT = shards.SCRATCH / "trials"
LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate", "bitsandbytes")
SETTINGS = ("ATEN_", "DNNL_", "ONEDNN_", "MKL_", "CUBLAS_", "NVIDIA_", "TORCH_")  # begin variables that choose kernels
TOLERANCE = 0.05  # nats: largest mean absolute difference of a token's log-prob from fp32's
DIFFERENCE = "nats from fp32"  # the trial's name
MIN_ROWS = 64  # torch's default multiplies fewer rows faster than oneDNN, as in decoding
TOKENS = 64  # of TEXT at most
TEXT = """The harbour master wrote down 14 ships on the first of May 1887, three of them from the south with salt and
cork. Nobody in the town had seen so many at once. "Where will they all lie?" asked Anna, who kept the inn by the
bridge. A year later the new pier was built of granite, 120 metres long, and the old one was left to the gulls."""


Found = bool | int | float


class Trials:
    """The results of the trials of the model in `folder`, by name."""

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if device == "cuda" else []
        machine = torch.cpu.get_capabilities(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        chosen = sorted(item for item in os.environ.items() if item[0].startswith(SETTINGS))
        libraries = [_version(name) for name in LIBRARIES]
        code = sorted(Path(__file__).parent.glob("*.py"))
        self._file = KEPT / (
            f"{shards.key_of(Path(folder), dtype, device, gpus, machine, chosen, libraries, *code)}.json"
        )
        self.known = self._kept = _read_trials(self._file)

    def found(self, name: str, trial: Callable[[], Found]) -> Found:
        """What the trial of this name found, in this process or an earlier one; without a result, it is done now."""
        if name not in self.known:
            self.known = self.known | {name: trial()}
        return self.known[name]

    def keep(self) -> None:
        """Keep the results, if some are new. Call this when the model can be used: a refusal is not kept."""
        if self.known != self._kept and shards.SCRATCH.is_dir():
            shards.write_json(self._file, self.known)


def _read_trials(file: Path) -> dict[str, Found]:
    """The results in a file; none where it is missing or damaged."""
    with suppress(OSError, ValueError):
        results = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(results, dict) and all(isinstance(found, Found) for found in results.values()):
            return results
    return {}


def _version(library: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(library)
    return None


def load(folder: Path, tokenizer, dtype: str, device: str, trials: Trials) -> PreTrainedModel:
    """Load the model in `folder` for inference, over all GPUs where there are several.

    `dtype` is fp32, bf16 or int8 (matrix products by LLM.int8, the rest in fp16). bf16 and int8 are compared with fp32
    on a fixed text if fp32 fits into memory; the result is printed. Raises LongtailError where they differ by more than
    TOLERANCE.
    """
    expected = None
    if dtype != "fp32" and DIFFERENCE not in trials.known:
        fp32_bytes = 4 * (count_parameters(folder) or 0)
        if fp32_bytes < 0.8 * psutil.virtual_memory().available:
            expected = _log_probs(_open(folder, "fp32", "cpu"), tokenizer)
        else:
            gigabytes = fp32_bytes / 1e9
            print(f"warning: {folder}: {dtype} not compared with fp32, which takes {gigabytes:.0f} GB", flush=True)
    model = _open(folder, dtype, device)
    if expected is not None or DIFFERENCE in trials.known:
        difference = trials.found(DIFFERENCE, lambda: float((_log_probs(model, tokenizer) - expected).abs().mean()))
        if not difference <= TOLERANCE:
            raise LongtailError(
                f"{folder}: log-probs in {dtype} are {difference:.3f} nats a token from those in fp32, expected "
                f"{TOLERANCE} at most; set its dtype to fp32"
            )
        print(f"{folder}: log-probs in {dtype} are {difference:.4f} nats a token from those in fp32", flush=True)
    return model


def _open(folder: Path, dtype: str, device: str) -> PreTrainedModel:
    several_gpus = device == "cuda" and torch.cuda.device_count() > 1
    options = {"device_map": "auto" if several_gpus else device} if several_gpus or dtype == "int8" else {}
    libraries = ["accelerate"] * bool(options) + ["bitsandbytes"] * (dtype == "int8")
    if missing := [name for name in libraries if not find_spec(name)]:
        what = "int8" if dtype == "int8" else "more than one GPU"
        raise LongtailError(f"{folder}: {what} needs {missing[0]}; pip install 'longtail[large]'")
    if dtype == "int8":
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    torch_dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float16}[dtype]
    try:
        model, loading_info = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch_dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    except UNREADABLE as error:
        raise LongtailError(
            f"{folder}: not a causal language model in safetensors: {' '.join(str(error).split())}"
        ) from None
    if dtype != "int8":  # int8 adds tensors that no checkpoint has
        check_complete(folder, model, loading_info)
    model = model.eval().requires_grad_(False)
    if not options:
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


def _mkl_is_slow() -> bool:
    """Whether oneDNN multiplies fp32 faster than MKL: on x86 processors but Intel's, where it takes longer."""
    processor = torch.cpu.get_capabilities()
    x86 = torch.backends.mkldnn.is_available() and processor.get("architecture") == "x86_64"
    return x86 and "Intel" not in processor.get("cpu_name", "")


def _replace_slow_layers(model: nn.Module) -> None:
    """Replace layers of `model` in place: fp32 linear layers where MKL is slow, and GPT-2's activation anywhere."""
    slow = _mkl_is_slow()
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
