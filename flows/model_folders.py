"""Read from a model's folder (Hugging Face's layout) what a profile says of it: a language model, or an encoder."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.lm.model_files import count_parameters

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "n_ctx")
ENDLESS = 2048  # tokens that a language model without a limit (ALiBi) is given at once
LONGEST = 512  # tokens of a document that an encoder is given, at most
TITLED = "{title} {text}"  # a document as most encoders read it
BGE = "Represent this sentence for searching relevant passages: "
FAMILIES = (  # what an encoder is called, then its pooling, similarity, prefix of queries, and template of documents
    (r"dpr", "cls", "dot", "", "{title} [SEP] {text}"),
    (r"bge.*-en", "cls", "cosine", BGE, TITLED),
    (r"bge", "cls", "cosine", "", TITLED),
    (r"(?<![a-z])e5(?![a-z])(?!.*instruct)", "mean", "cosine", "query: ", f"passage: {TITLED}"),
    (r"contriever", "mean", "dot", "", TITLED),
    (r"tas-b", "cls", "dot", "", TITLED),
    (r"dot", "mean", "dot", "", TITLED),
    (r"", "mean", "cosine", "", TITLED),
)


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
    kind: str  # the architecture
    settings: dict[str, Any]  # the settings of its section
    reasons: list[str]  # why these are what they are


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
    return _encoder(folder, config, kinds[0])


def param_name(name: str) -> str:
    """A name as params.yaml allows it: lower case, digits, hyphens and underscores."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "model"


def _published_name(folder: Path) -> str:
    """The model's name: the folder's; in a cache of the Hub, where that is a commit, the name on the Hub."""
    cached = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.parent.parent.name.split("--")[-1] if cached else folder.name


def _language_model(folder: Path, config: dict) -> LanguageModel:
    settings = _json(folder / "tokenizer_config.json")
    config = config | (config.get("text_config") or {})
    limits = [config.get(key) for key in POSITIONS] + [settings.get("model_max_length")]
    positions = min((int(limit) for limit in limits if limit and limit < 1 << 30), default=ENDLESS)
    chat = bool(settings.get("chat_template")) or (folder / "chat_template.jinja").is_file()
    # PyTorch's older files have no count; in half precision each parameter takes two bytes
    half = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.") in ("float16", "bfloat16")
    size = sum(file.stat().st_size for file in folder.glob("pytorch_model*.bin"))
    parameters = count_parameters(folder) or size // (2 if half else 4)
    return LanguageModel(folder, param_name(_published_name(folder)), parameters, positions, chat)


def _encoder(folder: Path, config: dict, kind: str) -> Encoder:
    """What the folder's files for sentence-transformers say comes first, then how its family was trained."""
    published = _published_name(folder)
    called = f"{published} {config.get('_name_or_path', '')} {'dpr' * kind.startswith('DPR')}".lower()
    family, pooling, similarity, query, document = next(row for row in FAMILIES if re.search(row[0], called))
    trained = f"as {re.search(family, called)[0]} was trained" if family else "a guess: the folder does not say"
    said_by = dict.fromkeys(("pooling", "similarity", "prefixes"), trained)

    pools = _json(folder / "1_Pooling/config.json")
    if pools:
        modes = {pools.get("pooling_mode"), *(mode for mode in pools if pools[mode] is True)}
        pooling = "mean" if modes & {"mean", "pooling_mode_mean_tokens"} else "cls"
        said_by["pooling"] = "as 1_Pooling/config.json says"
        if not modes & {"mean", "pooling_mode_mean_tokens", "cls", "pooling_mode_cls_token"}:
            raise LongtailError("an encoder that pools neither by the mean nor by the first token")
    known = _json(folder / "config_sentence_transformers.json")
    if known.get("similarity_fn_name") in ("cosine", "dot"):
        similarity, said_by["similarity"] = known["similarity_fn_name"], "as config_sentence_transformers.json says"
    elif any(module.get("type", "").endswith("Normalize") for module in _json(folder / "modules.json", [])):
        similarity, said_by["similarity"] = "cosine", "because modules.json normalizes the vectors"
    prompts = known.get("prompts") or {}
    before = prompts.get("document") or prompts.get("passage", "")
    if before or prompts.get("query"):
        query, document = prompts.get("query", ""), before + TITLED
        said_by["prefixes"] = "as config_sentence_transformers.json says"

    padding = 2 if config.get("model_type") in ("roberta", "xlm-roberta", "mpnet", "camembert") else 0
    positions = next((config[key] for key in POSITIONS if config.get(key)), LONGEST) - padding
    longest = _json(folder / "sentence_bert_config.json").get("max_seq_length") or positions
    settings = {
        "source": "pretrained", "path": str(folder.absolute()), "revision": None, "query_path": None,
        "query_revision": None, "pooling": pooling, "similarity": similarity, "query_prefix": query,
        "document": document, "dtype": "fp32", "max_tokens": min(int(longest), positions, LONGEST), "training": None,
    }  # fmt: skip
    parts = re.findall(r"[a-z0-9]+", published.lower())
    name = "-".join(parts) if parts and parts != ["lsr"] else "encoder"
    return Encoder(folder, name, kind, settings, [f"{what}: {why}" for what, why in said_by.items()])


def pair_dpr(encoders: list[Encoder]) -> list[Encoder]:
    """The encoders, with DPR's encoder for queries inside the one for documents."""
    queries = [encoder for encoder in encoders if encoder.kind == "DPRQuestionEncoder"]
    others = [encoder for encoder in encoders if encoder not in queries]
    for encoder in others:
        if queries and encoder.kind == "DPRContextEncoder":
            encoder.settings["query_path"] = queries[0].settings["path"]
    return others or queries


def _json(file: Path, otherwise=None):
    """What a JSON file holds, or `otherwise` ({}) where there is no such file or it is not JSON of that kind."""
    otherwise = {} if otherwise is None else otherwise
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return otherwise
    return value if isinstance(value, type(otherwise)) else otherwise
