"""Read from a model's folder (Hugging Face's layout) what a profile says of it: a language model, or an encoder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.errors import LongtailError
from pipelines.lm.model_files import count_parameters

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "n_ctx")
ENDLESS = 2048  # tokens that a language model without a limit (ALiBi) is given at once
LONGEST = 512  # tokens of a document that an encoder is given, at most
TITLED = "{title} {text}"  # a document as most encoders read it
BGE = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True)
class LanguageModel:
    folder: Path
    name: str  # under lm
    parameters: int
    positions: int  # tokens that it reads at once
    chat: bool  # whether it comes with a chat template


@dataclass(frozen=True)
class Encoder:
    folder: Path
    name: str  # under retriever
    pooling: str
    similarity: str
    query_prefix: str
    document: str  # template of a document's {title} and {text}
    max_tokens: int
    reasons: tuple[str, ...]  # why pooling, similarity, prefix and template are what they are
    query_folder: Path | None = None  # DPR: of the encoder for queries


def folders_below(folder: Path) -> Iterator[Path]:
    """The folders with a config.json at or below a folder, sorted; none inside another one."""
    visited: set[Path] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = Path(place).resolve()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if real in visited or "config.json" in names:
            folders.clear()
        if real not in visited and "config.json" in names:
            yield Path(place)
        visited.add(real)


def read_model_folder(folder: Path) -> LanguageModel | Encoder:
    """What the model in a folder is. Raises LongtailError, naming no folder, where Longtail can't use it."""
    config = _json(folder / "config.json")
    kinds, family = config.get("architectures") or [], config.get("model_type", "")
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise LongtailError(f"a model without weights, in none of {', '.join(WEIGHTS)}")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise LongtailError("a model without a tokenizer")
    causal = any(re.search(r"(ForCausalLM|LMHeadModel)$", kind) for kind in kinds)
    pooled = (folder / "modules.json").is_file() or (folder / "1_Pooling").is_dir()
    if causal and not pooled and (config.get("is_decoder") is not False or not family.startswith("bert")):
        return _language_model(folder, config)
    other = next((kind for kind in kinds if not re.search(r"(Model|ForMaskedLM|ForPreTraining|Encoder)$", kind)), "")
    if (other and not pooled) or config.get("is_encoder_decoder") or not kinds:
        raise LongtailError(f"a model of the kind {other or family or 'unknown'}, neither a causal one nor an encoder")
    return _encoder(folder, config, kinds)


def published_name(folder: Path) -> str:
    """The model's name: the folder's; in a cache of the Hub, where that is a commit, the name on the Hub."""
    cached = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.parent.parent.name.split("--")[-1] if cached else folder.name


def param_name(name: str) -> str:
    """A name as params.yaml allows it: lower case, digits, hyphens and underscores."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "model"


def retriever_name(name: str) -> str:
    """A retriever's name as params.yaml allows it: lower case, digits and single hyphens."""
    parts = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(parts) if parts and parts != ["lsr"] else "encoder"


def _language_model(folder: Path, config: dict) -> LanguageModel:
    settings = _json(folder / "tokenizer_config.json")
    config = config | (config.get("text_config") or {})
    limits = [config.get(key) for key in POSITIONS] + [settings.get("model_max_length")]
    positions = min((int(limit) for limit in limits if limit and limit < 1 << 30), default=ENDLESS)
    chat = bool(settings.get("chat_template")) or (folder / "chat_template.jinja").is_file()
    name = param_name(published_name(folder))
    return LanguageModel(folder, name, _parameters(folder, config), positions, chat)


def _encoder(folder: Path, config: dict, kinds: list[str]) -> Encoder:
    name = f"{published_name(folder)} {config.get('_name_or_path', '')}".lower()
    known = _json(folder / "config_sentence_transformers.json")
    pooling, why_pooling = _pooling(folder, name, kinds)
    similarity, why_similarity = _similarity(folder, name, kinds, known)
    query_prefix, document, why_prefixes = _prefixes(name, kinds, known.get("prompts") or {})
    padding = 2 if config.get("model_type") in ("roberta", "xlm-roberta", "mpnet", "camembert") else 0
    positions = next((config[key] for key in POSITIONS if config.get(key)), LONGEST) - padding
    longest = _json(folder / "sentence_bert_config.json").get("max_seq_length") or positions
    return Encoder(
        folder=folder,
        name=retriever_name(published_name(folder)),
        pooling=pooling,
        similarity=similarity,
        query_prefix=query_prefix,
        document=document,
        max_tokens=min(int(longest), positions, LONGEST),
        reasons=(why_pooling, why_similarity, *why_prefixes),
    )


def _pooling(folder: Path, name: str, kinds: list[str]) -> tuple[str, str]:
    file = folder / "1_Pooling/config.json"
    settings = _json(file)
    modes = {"mean": settings.get("pooling_mode_mean_tokens"), "cls": settings.get("pooling_mode_cls_token")}
    modes[settings.get("pooling_mode")] = True
    if chosen := next((mode for mode in ("mean", "cls") if modes.get(mode)), None):
        return chosen, "pooling: as 1_Pooling/config.json says"
    if file.is_file():
        raise LongtailError("an encoder that pools neither by the mean nor by the first token")
    if _is_dpr(kinds):
        return "cls", "pooling: cls, as DPR was trained"
    if "bge" in name:
        return "cls", "pooling: cls, as BGE was trained"
    known = next((family for family in ("contriever", "e5") if family in name), None)
    return "mean", f"pooling: mean, {f'as {known} was trained' if known else 'a guess: the folder does not say'}"


def _similarity(folder: Path, name: str, kinds: list[str], known: dict) -> tuple[str, str]:
    if (said := known.get("similarity_fn_name")) in ("cosine", "dot"):
        return said, "similarity: as config_sentence_transformers.json says"
    modules = folder / "modules.json"
    types = [module.get("type", "") for module in _json(modules, [])]
    if any(kind.endswith("Normalize") for kind in types):
        return "cosine", "similarity: cosine, because modules.json normalizes the vectors"
    if _is_dpr(kinds) or re.search(r"contriever|dpr|tas-b|dot", name):
        return "dot", "similarity: dot, as it was trained (by its name)"
    return "cosine", f"similarity: cosine, {'the default of its library' if types else 'the usual one'}"


def _prefixes(name: str, kinds: list[str], prompts: dict[str, str]) -> tuple[str, str, tuple[str, ...]]:
    """What goes before a query, the template of a document, and why."""
    query, document = prompts.get("query", ""), prompts.get("document") or prompts.get("passage", "")
    if query or document:
        return query, document + TITLED, ("prefixes: as config_sentence_transformers.json says",)
    if _is_dpr(kinds):
        return "", "{title} [SEP] {text}", ("document: as DPR was trained",)
    if re.search(r"(?<![a-z])e5(?![a-z])", name) and "instruct" not in name:
        return "query: ", f"passage: {TITLED}", ("prefixes: E5 was trained with them",)
    if re.search(r"bge.*-en", name):
        return BGE, TITLED, ("query_prefix: BGE was trained with it",)
    return "", TITLED, ()


def pair_dpr(encoders: list[Encoder]) -> list[Encoder]:
    """The encoders, with DPR's encoder for queries inside the one for documents."""
    kinds = {
        encoder.folder: (_json(encoder.folder / "config.json").get("architectures") or [""])[0] for encoder in encoders
    }
    queries = [encoder for encoder in encoders if kinds[encoder.folder] == "DPRQuestionEncoder"]
    paired = []
    for encoder in encoders:
        if encoder not in queries:
            other = queries[0].folder if queries and kinds[encoder.folder] == "DPRContextEncoder" else None
            paired.append(replace(encoder, query_folder=other))
    return paired or queries


def _parameters(folder: Path, config: dict) -> int:
    """Counted in safetensors; for PyTorch's older files by their size, of which half precision takes two bytes each."""
    half = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.") in ("float16", "bfloat16")
    size = sum(file.stat().st_size for file in folder.glob("pytorch_model*.bin"))
    return count_parameters(folder) or size // (2 if half else 4)


def _is_dpr(kinds: list[str]) -> bool:
    return any(kind.startswith("DPR") for kind in kinds)


def _json(file: Path, otherwise=None):
    """What a JSON file holds, or `otherwise` ({}) where there is no such file or it is not JSON of that kind."""
    otherwise = {} if otherwise is None else otherwise
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return otherwise
    return value if isinstance(value, type(otherwise)) else otherwise
