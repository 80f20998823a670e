"""Read what a profile says of a model from its folder, in Hugging Face's layout.

The model is a language model or an encoder.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.errors import LongtailError
from pipelines.lm.model_files import check_folder, check_own_code, count_parameters, read_object
from pipelines.retrieval.modules import Modules, read_modules, reader

POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "n_ctx")
ENDLESS_TOKENS = 2048  # that a language model without a limit (ALiBi) is given at once
UNLIMITED = 1 << 30  # a limit of so many tokens is none
MOST_DOCUMENT_TOKENS = 512  # that an encoder is given
TITLED = "{title} {text}"  # a document as most encoders read it
BGE_QUERY = "Represent this sentence for searching relevant passages: "


class Family(NamedTuple):
    """How a family of encoders was trained."""

    name: str  # a regular expression that finds it in a model's name
    pooling: str
    similarity: str
    query: str = ""  # prefix
    document: str = TITLED  # template


FAMILIES = (  # the first that fits counts
    Family(r"dpr", "cls", "dot", document="{title} [SEP] {text}"),
    Family(r"bge.*-en", "cls", "cosine", query=BGE_QUERY),
    Family(r"bge", "cls", "cosine"),
    Family(
        r"(?<![a-z])e5(?![a-z])(?!.*instruct)",
        "mean",
        "cosine",
        query="query: ",
        document=f"passage: {TITLED}",
    ),
    Family(r"contriever", "mean", "dot"),
    Family(r"tas-b", "cls", "dot"),
    Family(r"dot", "mean", "dot"),
    Family(r"", "mean", "cosine"),
)
# How the names of architectures begin that read a text alone, and give a state for each token.
ENCODERS = (
    "Albert|Bert|BigBird|Bloom|Camembert|Cohere|Cohere2|ConvBert|Data2VecText|Deberta|DebertaV2"
    "|DistilBert|Electra|Ernie|EuroBert|Falcon|Flaubert|Gemma|Gemma2|Gemma3Text|GPT2|GPTJ|GPTNeo"
    "|GPTNeoX|Granite|Gte|IBert|JinaEmbeddingsV3|Llama|Longformer|MegatronBert|Ministral"
    "|Ministral3|Mistral|Mixtral|MobileBert|ModernBert|MPNet|Mpt|NomicBert|Nystromformer|Olmo"
    "|Olmo2|Olmo3|OPT|Phi|Phi3|Qwen2|Qwen2Moe|Qwen3|Qwen3Moe|RemBert|RoCBert|RoFormer|Roberta"
    "|RobertaPreLayerNorm|SmolLM3|SqueezeBert|StableLm|XGLM|XLM|XLMRoberta|XLMRobertaXL|XLNet"
    "|Xmod|Yoso"
)
# How these names end where the files don't say what follows the states.
UNTRAINED = "Model|ForMaskedLM|ForPreTraining|LMHeadModel"
PADDED = ("roberta", "xlm-roberta", "mpnet", "camembert")  # two positions are no tokens
HALF_PRECISION = ("float16", "bfloat16")


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
    """What the model in a folder is.

    Raises LongtailError, naming no folder, if it can't be used.
    """
    modules = read_modules(reader(folder))
    inside = folder / modules.folder
    if not inside.is_dir():
        raise LongtailError(
            f"a model without the folder {modules.folder}, which modules.json lists"
        )
    check_folder(inside)
    config = read_object(inside / "config.json")
    architectures = config.get("architectures") or []
    if not architectures:
        raise LongtailError(
            f"config.json names no architectures (its type is {config.get('model_type')}); "
            'add the one that it is of, such as "architectures": ["LlamaForCausalLM"] or '
            '["BertModel"]'
        )
    if modules.pooling is None and _is_causal(config):
        check_own_code(folder, "AutoModelForCausalLM")
        return _language_model(folder, config)

    architecture = architectures[0]
    ends = UNTRAINED if modules.pooling is None else ".+"
    known = rf"({ENCODERS})({ends})|DPR(Context|Question)Encoder|Contriever"
    if not re.fullmatch(known, architecture) or config.get("is_encoder_decoder"):
        raise LongtailError(
            f"a model of the kind {architecture}, neither a causal one nor a known encoder of texts"
        )
    check_own_code(inside, "AutoModel")
    is_masked = architecture.endswith("ForMaskedLM") and modules.pooling is None
    if is_masked and _says_splade(folder, config):
        raise LongtailError(
            "a SPLADE, with a weight for each word, which is not computed; "
            "take an encoder with vectors"
        )
    return _encoder(folder, inside, config, architecture, modules)


def _is_causal(config: dict[str, Any]) -> bool:
    """Whether a model without pooling is a language model; BERT's may say that it is no decoder."""
    names = config["architectures"]
    if not any(re.search(r"(ForCausalLM|LMHeadModel)$", name) for name in names):
        return False
    is_bert = config.get("model_type", "").startswith("bert")
    return config.get("is_decoder") is not False or not is_bert


def _says_splade(folder: Path, config: dict[str, Any]) -> bool:
    """Whether the settings or the tags of a model's card say that it is a SPLADE.

    Its architecture is BERT's.
    """
    words = str(config.get("_name_or_path"))
    card = folder / "README.md"
    if card.is_file():
        text = card.read_text(encoding="utf-8", errors="replace")
        if text.startswith("---"):
            words += text.partition("\n---")[0]
    return "splade" in words.lower()


def param_name(name: str) -> str:
    """A name as params.yaml allows it: lower case, digits, hyphens and underscores."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "model"


def _published_name(folder: Path) -> str:
    """The model's name: the folder's, or in a cache of the Hub the name on the Hub."""
    model = folder.parent.parent.name
    if folder.parent.name == "snapshots" and model.startswith("models--"):
        return model.split("--")[-1]
    return folder.name


def _language_model(folder: Path, config: dict[str, Any]) -> LanguageModel:
    tokenizer = read_object(folder / "tokenizer_config.json")
    config = config | (config.get("text_config") or {})
    limits = []
    for limit in (*(config.get(key) for key in POSITIONS), tokenizer.get("model_max_length")):
        if limit and limit < UNLIMITED:
            limits.append(int(limit))
    published = _published_name(folder)
    parameters = count_parameters(folder) or _parameters_by_size(folder, config)
    has_template = bool(tokenizer.get("chat_template"))
    return LanguageModel(
        folder=folder,
        name=param_name(published),
        parameters=parameters,
        positions=min(limits, default=ENDLESS_TOKENS),
        chat=has_template or (folder / "chat_template.jinja").is_file(),
    )


def _parameters_by_size(folder: Path, config: dict[str, Any]) -> int:
    """The parameters in PyTorch's older files, which have no count of them."""
    dtype = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    parameter_bytes = 2 if dtype in HALF_PRECISION else 4
    size = sum(file.stat().st_size for file in folder.glob("pytorch_model*.bin"))
    return size // parameter_bytes


def _encoder(
    folder: Path, inside: Path, config: dict[str, Any], architecture: str, modules: Modules
) -> Encoder:
    """An encoder with its settings.

    What the folder's files for sentence-transformers say comes first, then how its family was
    trained.
    """
    published = _published_name(folder)
    names = f"{published} {config.get('_name_or_path', '')}".lower()
    if architecture.startswith("DPR"):
        names += " dpr"
    family = next(family for family in FAMILIES if re.search(family.name, names))
    is_prompted = modules.query is not None or modules.document is not None
    query = family.query
    document = family.document
    if is_prompted:
        query = modules.query or ""
        document = f"{modules.document or ''}{TITLED}"

    positions = next((config[key] for key in POSITIONS if config.get(key)), MOST_DOCUMENT_TOKENS)
    if config.get("model_type") in PADDED:
        positions -= 2
    most_tokens = min(int(modules.max_tokens or positions), positions, MOST_DOCUMENT_TOKENS)
    settings = {
        "path": str(folder.absolute()),
        "revision": None,
        "query_path": None,
        "query_revision": None,
        "pooling": modules.pooling or family.pooling,
        "similarity": modules.similarity or family.similarity,
        "query_prefix": query,
        "document": document,
        "dtype": "fp32",
        "max_tokens": most_tokens,
    }

    trained = "a guess: the folder does not say"
    match = re.search(family.name, names)
    if family.name and match:
        trained = f"as {match[0]} was trained"
    published_words = re.findall(r"[a-z0-9]+", published.lower())
    name = "-".join(published_words)
    if name in ("", "lsr"):
        name = "encoder"
    return Encoder(folder, name, architecture, settings, _reasons(modules, is_prompted, trained))


def _reasons(modules: Modules, is_prompted: bool, trained: str) -> list[str]:
    """Where an encoder's settings are from."""
    by_files = "as the files for sentence-transformers say"
    is_said = {
        "pooling": modules.pooling is not None,
        "similarity": modules.similarity is not None,
        "prefixes": is_prompted,
    }
    return [f"{name}: {by_files if said else trained}" for name, said in is_said.items()]


def pair_dpr(encoders: list[Encoder]) -> list[Encoder]:
    """The encoders, with DPR's encoder for queries inside the one for documents."""
    queries = [encoder for encoder in encoders if encoder.kind == "DPRQuestionEncoder"]
    others = [encoder for encoder in encoders if encoder not in queries]
    for encoder in others:
        if queries and encoder.kind == "DPRContextEncoder":
            encoder.settings["query_path"] = queries[0].settings["path"]
    return others or queries
