"""Read from a model's folder (Hugging Face's layout) what a profile says of it: a language model, or an encoder."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.lm.model_files import check_folder, count_parameters, read_object
from pipelines.retrieval.modules import Modules, read_modules, reader

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
ENCODERS = (  # how the names of architectures begin that read a text alone, and give a state for each of its tokens
    "Albert|Bert|BigBird|Bloom|Camembert|Cohere|Cohere2|ConvBert|Data2VecText|Deberta|DebertaV2|DistilBert|Electra|Ernie|"
    "EuroBert|Falcon|Flaubert|Gemma|Gemma2|Gemma3Text|GPT2|GPTJ|GPTNeo|GPTNeoX|Granite|Gte|IBert|JinaEmbeddingsV3|Llama|"
    "Longformer|MegatronBert|Ministral|Ministral3|Mistral|Mixtral|MobileBert|ModernBert|MPNet|Mpt|NomicBert|Nystromformer|"
    "Olmo|Olmo2|Olmo3|OPT|Phi|Phi3|Qwen2|Qwen2Moe|Qwen3|Qwen3Moe|RemBert|RoCBert|RoFormer|Roberta|RobertaPreLayerNorm|"
    "SmolLM3|SqueezeBert|StableLm|XGLM|XLM|XLMRoberta|XLMRobertaXL|XLNet|Xmod|Yoso"
)
UNTRAINED = "Model|ForMaskedLM|ForPreTraining|LMHeadModel"  # how they end where the files don't say what follows them
HEADS = {  # how a name ends -> what such a model is for
    "ForSequenceClassification": "; a cross-encoder is named in the section `reranker`",
}


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
    modules = read_modules(reader(folder))
    if not (inside := folder / modules.folder).is_dir():
        raise LongtailError(
            f"a model without the folder {modules.folder}, which modules.json lists"
        )
    check_folder(inside)
    config = read_object(inside / "config.json")
    kinds, family = config.get("architectures") or [], config.get("model_type", "")
    if not kinds:
        named = (
            'the one that it is of, such as "architectures": ["LlamaForCausalLM"] or ["BertModel"]'
        )
        raise LongtailError(
            f"config.json names no architectures (its type is {family or 'not named'}); add {named}"
        )
    causal = any(re.search(r"(ForCausalLM|LMHeadModel)$", kind) for kind in kinds)
    pooled = modules.pooling is not None
    if (
        causal
        and not pooled
        and (config.get("is_decoder") is not False or not family.startswith("bert"))
    ):
        return _language_model(folder, config)
    known = rf"({ENCODERS})({'.+' if pooled else UNTRAINED})|DPR(Context|Question)Encoder"
    if not re.fullmatch(known, kinds[0]) or config.get("is_encoder_decoder"):
        head = next((said for end, said in HEADS.items() if kinds[0].endswith(end)), "")
        raise LongtailError(
            f"a model of the kind {kinds[0]}, neither a causal one nor a known encoder of texts{head}"
        )
    if kinds[0].endswith("ForMaskedLM") and not pooled and _says_splade(folder, config):
        raise LongtailError(
            "a SPLADE, with a weight for each word, which is not computed; take an encoder with vectors"
        )
    return _encoder(folder, inside, config, kinds[0], modules)


def _says_splade(folder: Path, config: dict) -> bool:
    """Whether the settings or the tags of a model's card say that it is a SPLADE; its architecture is BERT's."""
    card = folder / "README.md"
    tags = (
        card.read_text(encoding="utf-8", errors="replace").partition("\n---")[0]
        if card.is_file()
        else ""
    )
    return "splade" in f"{tags * tags.startswith('---')} {config.get('_name_or_path')}".lower()


def param_name(name: str) -> str:
    """A name as params.yaml allows it: lower case, digits, hyphens and underscores."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "model"


def _published_name(folder: Path) -> str:
    """The model's name: the folder's; in a cache of the Hub, where that is a commit, the name on the Hub."""
    cached = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.parent.parent.name.split("--")[-1] if cached else folder.name


def _language_model(folder: Path, config: dict) -> LanguageModel:
    settings = read_object(folder / "tokenizer_config.json")
    config = config | (config.get("text_config") or {})
    limits = [config.get(key) for key in POSITIONS] + [settings.get("model_max_length")]
    positions = min((int(limit) for limit in limits if limit and limit < 1 << 30), default=ENDLESS)
    chat = bool(settings.get("chat_template")) or (folder / "chat_template.jinja").is_file()
    # PyTorch's older files have no count; in half precision each parameter takes two bytes
    half = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.") in (
        "float16",
        "bfloat16",
    )
    size = sum(file.stat().st_size for file in folder.glob("pytorch_model*.bin"))
    parameters = count_parameters(folder) or size // (2 if half else 4)
    return LanguageModel(folder, param_name(_published_name(folder)), parameters, positions, chat)


def _encoder(folder: Path, inside: Path, config: dict, kind: str, modules: Modules) -> Encoder:
    """What the folder's files for sentence-transformers say comes first, then how its family was trained."""
    published = _published_name(folder)
    called = (
        f"{published} {config.get('_name_or_path', '')} {'dpr' * kind.startswith('DPR')}".lower()
    )
    family, pooling, similarity, query, document = next(
        row for row in FAMILIES if re.search(row[0], called)
    )
    trained = (
        f"as {re.search(family, called)[0]} was trained"
        if family
        else "a guess: the folder does not say"
    )
    prompted = modules.query is not None or modules.document is not None
    if prompted:
        query, document = modules.query or "", f"{modules.document or ''}{TITLED}"
    said = {
        "pooling": modules.pooling,
        "similarity": modules.similarity,
        "prefixes": prompted or None,
    }
    reasons = [
        f"{what}: {trained if value is None else 'as the files for sentence-transformers say'}"
        for what, value in said.items()
    ]

    padding = (
        2 if config.get("model_type") in ("roberta", "xlm-roberta", "mpnet", "camembert") else 0
    )
    positions = next((config[key] for key in POSITIONS if config.get(key)), LONGEST) - padding
    longest = modules.max_tokens or positions
    settings = {
        "source": "pretrained", "path": str(folder.absolute()), "revision": None, "query_path": None,
        "query_revision": None, "pooling": modules.pooling or pooling,
        "similarity": modules.similarity or similarity, "query_prefix": query,
        "document": document, "dtype": "fp32", "max_tokens": min(int(longest), positions, LONGEST), "training": None,
    }  # fmt: skip
    parts = re.findall(r"[a-z0-9]+", published.lower())
    name = "-".join(parts) if parts and parts != ["lsr"] else "encoder"
    return Encoder(folder, name, kind, settings, reasons)


def pair_dpr(encoders: list[Encoder]) -> list[Encoder]:
    """The encoders, with DPR's encoder for queries inside the one for documents."""
    queries = [encoder for encoder in encoders if encoder.kind == "DPRQuestionEncoder"]
    others = [encoder for encoder in encoders if encoder not in queries]
    for encoder in others:
        if queries and encoder.kind == "DPRContextEncoder":
            encoder.settings["query_path"] = queries[0].settings["path"]
    return others or queries
