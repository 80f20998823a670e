"""The encoder gives what a plain loop over transformers gives, whatever the pooling, towers,
prefixes and numerics.

A saved one embeds the same without us, by transformers alone; tests/parity opens it in
sentence-transformers.
"""

import json
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from torch.nn.functional import cosine_similarity
from transformers import (
    AutoModel,
    AutoTokenizer,
    DPRContextEncoder,
    DPRQuestionEncoder,
    RobertaConfig,
    RobertaModel,
)

from pipelines.errors import LongtailError
from pipelines.retrieval import base_retriever, encoder, token_limits
from pipelines.retrieval.encoder import BF16, EXACT, QUERIES, Encoder, Numerics
from pipelines.work import devices

TEXTS = ["", *tiny_models.words(11, 0, at_most=60), "<s> Velm", "Velm " * 10_000]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def dpr(tmp_path_factory):
    """DPR's two towers as published."""
    made, kinds = tmp_path_factory.mktemp("dpr"), (DPRContextEncoder, DPRQuestionEncoder)
    return tuple(
        tiny_models.dpr(made / kind.__name__, kind, seed) for seed, kind in enumerate(kinds, 1)
    )


def open_encoder(folder, numerics=None, **changes) -> Encoder:
    settings = tiny_models.retriever(**{"max_tokens": 32} | changes)
    return Encoder.open(folder, settings, tiny_models.compute(), numerics)


@torch.inference_mode()
def plain(folder, texts, pool, kind=AutoModel, max_tokens=32) -> torch.Tensor:
    """One text at a time: `pool` makes a vector of the model's output."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), kind.from_pretrained(folder).eval()
    pad = [tokenizer.pad_token_id]
    ids = [
        tokenizer(text, truncation=True, max_length=max_tokens)["input_ids"] or pad
        for text in texts
    ]
    return torch.stack([pool(model(torch.tensor([tokens]))) for tokens in ids])


POOLS = {
    "mean": lambda out: out.last_hidden_state[0].mean(0),
    "cls": lambda out: out.last_hidden_state[0, 0],
    "lasttoken": lambda out: out.last_hidden_state[0, -1],
}


@pytest.mark.parametrize(
    ("pooling", "similarity"),
    [("mean", "cosine"), ("cls", "cosine"), *((pooling, "dot") for pooling in POOLS)],
)
def test_embeddings_are_those_of_a_plain_loop(folder, pooling, similarity, monkeypatch):
    monkeypatch.setattr(token_limits, "CPU_TOKENS", 64)
    settings = {"pooling": pooling, "similarity": similarity, "query_prefix": "query: "}
    # documents come in their template
    opened = open_encoder(folder, document="passage: {text}", **settings)
    for embed, prefix in ((opened.embed_queries, "query: "), (opened.embed, "")):
        expected = plain(folder, [prefix + text for text in TEXTS], POOLS[pooling])
        expected = torch.nn.functional.normalize(expected) if similarity == "cosine" else expected
        np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-5)


@pytest.mark.usefixtures("workplace")
def test_dprs_two_towers_are_kept(dpr, tmp_path):
    """Each embeds and learns on its side."""
    both = {"path": str(dpr[0]), "query_path": str(dpr[1]), "pooling": "cls", "similarity": "dot"}
    counted = base_retriever.copy_pretrained(tiny_models.retriever(**both), tmp_path / "retriever")
    assert not (tmp_path / "retriever/modules.json").exists(), (
        "two towers are no sentence transformer"
    )
    opened = open_encoder(tmp_path / "retriever", **both | {"path": "gone", "query_path": "gone"})
    vectors = []
    for embed, tower, kind in (
        (opened.embed, dpr[0], DPRContextEncoder),
        (opened.embed_queries, dpr[1], DPRQuestionEncoder),
    ):
        expected = plain(tower, TEXTS, lambda out: out.pooler_output[0], kind)
        np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-5)
        vectors.append(opened.embed_with_gradient(opened.tokens(TEXTS), queries=tower is dpr[1]))
        np.testing.assert_allclose(vectors[-1].detach().numpy(), expected, atol=1e-5)
    assert counted["parameters"] == sum(weight.numel() for weight in opened.parameters())
    (vectors[0] @ vectors[1].flip(0).T).sum().backward()
    learnt = {id(weight) for weight in opened.parameters()}
    for tower in (opened.documents, opened.queries):
        assert learnt >= {id(weight) for weight in tower.model.parameters()}
        assert all(
            p.grad.abs().sum() > 0
            for n, p in tower.model.named_parameters()
            if n.endswith("value.weight")
        )


def test_roberta_counts_positions_from_behind_the_padding(tmp_path):
    tokenizer = tiny_models.tokenizer(bos=True)
    shape = tiny_models.ENCODER | {
        "max_position_embeddings": 20,
        "pad_token_id": tokenizer.pad_token_id,
    }
    tiny_models.save(
        tmp_path,
        lambda config: RobertaModel(config, add_pooling_layer=False),
        RobertaConfig,
        tokenizer,
        **shape,
    )
    expected = plain(tmp_path, TEXTS, POOLS["mean"], max_tokens=20 - tokenizer.pad_token_id - 1)
    np.testing.assert_allclose(
        open_encoder(tmp_path, EXACT, similarity="dot").embed(TEXTS), expected, atol=1e-5
    )


def test_bf16_training_on_a_cpu_leaves_fused_attention(folder):
    opened, kinds = open_encoder(folder, EXACT), []
    model = opened.documents.model
    model.register_forward_pre_hook(lambda read, _: kinds.append(read.config._attn_implementation))
    for half in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            opened.embed_with_gradient(opened.tokens(TEXTS))
    assert kinds == ["eager", "sdpa"]
    assert model.config._attn_implementation == "sdpa", "embedding would change"


def test_training_leaves_each_towers_own_attention(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "two")
    shutil.copytree(folder, tmp_path / "two" / QUERIES)
    opened = open_encoder(tmp_path / "two", EXACT)
    opened.queries.model.set_attn_implementation("eager")
    for queries in (False, True):
        opened.embed_with_gradient(opened.tokens(TEXTS), queries=queries)
    towers = (opened.documents, opened.queries)
    kinds = [tower.model.config._attn_implementation for tower in towers]
    assert kinds == ["sdpa", "eager"]


@pytest.mark.parametrize(("batch_tokens", "cached"), [(100, 2048), (65536, 100)])
def test_no_batch_has_more_tokens_than_allowed(batch_tokens, cached, folder, monkeypatch):
    """Little of them is padding."""
    monkeypatch.setattr(encoder, "CACHED_TOKENS", cached)
    monkeypatch.setattr(encoder, "CACHED_WITH_GRADIENT", 60)
    monkeypatch.setattr(token_limits, "CPU_TOKENS", batch_tokens)
    opened, shapes = open_encoder(folder), []
    opened.documents.model.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append(
            (inputs["input_ids"].numel(), int(inputs["attention_mask"].sum()))
        ),
        with_kwargs=True,
    )
    texts = tiny_models.words(200, 3, at_most=30)
    opened.embed(texts)
    cells, tokens = np.array(shapes).T
    assert cells.max() <= 100
    assert tokens.sum() == opened.documents.tokens(texts).lengths.sum()
    assert tokens.sum() > 0.9 * cells.sum()
    shapes.clear()
    opened.embed_with_gradient(opened.tokens(texts))
    assert 30 < max(shapes)[0] <= 60
    shapes.clear()
    with torch.autocast("cpu", torch.bfloat16):
        opened.embed_with_gradient(opened.tokens(texts))
    assert 60 < max(shapes)[0] <= batch_tokens, "bf16 is faster with many at once"


def test_texts_come_back_in_their_order(folder, tmp_path, monkeypatch):
    """They do so over many windows, and from a saved encoder."""
    texts, opened = tiny_models.words(30, 4), open_encoder(folder)
    whole, saved = opened.embed(texts), []
    for name in ("a", "b"):
        opened.save(tmp_path / name)
        files = (tmp_path / name).rglob("*.*")
        saved.append({str(file.relative_to(tmp_path / name)): file.read_bytes() for file in files})
    assert "model.safetensors" in saved[0]
    assert saved[0] == saved[1]
    np.testing.assert_array_equal(open_encoder(tmp_path / "a").embed(texts), whole)
    monkeypatch.setattr(encoder, "WINDOW", 7)
    np.testing.assert_allclose(open_encoder(folder).embed(texts), whole, atol=1e-6)
    assert open_encoder(folder).embed([]).shape == (0, 32)


@pytest.mark.parametrize(
    ("pooling", "similarity", "prefix"), [("mean", "cosine", ""), ("cls", "dot", "passage: ")]
)
def test_transformers_alone_embeds_the_same(pooling, similarity, prefix, folder, tmp_path):
    """The files say what the params say."""
    ways = {"pooling": pooling, "similarity": similarity, "document": prefix + "{title} {text}"}
    settings = tiny_models.retriever(**ways, query_prefix=prefix and "query: ", max_tokens=32)
    out = tmp_path / "saved"
    opened = Encoder.open(folder, settings, tiny_models.compute())
    opened.save(out)
    vectors = plain(out, [settings.query_prefix + text for text in TEXTS], POOLS[pooling])
    vectors = torch.nn.functional.normalize(vectors) if similarity == "cosine" else vectors
    np.testing.assert_allclose(opened.embed_queries(TEXTS), vectors, atol=1e-4)

    read = {file.name: json.loads(file.read_text()) for file in out.glob("*.json")}
    kinds = [module["type"].rpartition(".")[2] for module in read["modules.json"]]
    assert (
        kinds
        == ["Transformer", "Pooling", "Normalize"][: 3 if settings.similarity == "cosine" else 2]
    )
    prompts = {
        "query": settings.query_prefix,
        "document": settings.document.removesuffix("{title} {text}"),
    }
    assert read["config_sentence_transformers.json"]["prompts"] == prompts
    assert read["config_sentence_transformers.json"]["similarity_fn_name"] == settings.similarity
    assert read["sentence_bert_config.json"]["max_seq_length"] == settings.max_tokens
    pooling = json.loads((out / "1_Pooling/config.json").read_text())
    assert pooling["word_embedding_dimension"] == opened.dim
    assert (
        pooling["pooling_mode_cls_token"]
        == (settings.pooling == "cls")
        != pooling["pooling_mode_mean_tokens"]
    )


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_bf16_is_used_where_it_is_as_good_as_fp32(tmp_path, capsys, spread):
    """Else it is left with a line."""
    # 3.0: attention so sharp that rounding turns it
    folder = tiny_models.encoder(tmp_path, spread=spread)
    whole = open_encoder(folder, dtype="fp32").embed(TEXTS)
    capsys.readouterr()
    half, said = open_encoder(folder, dtype="bf16"), capsys.readouterr().out.splitlines()[:1]
    vectors = half.embed(TEXTS)
    assert half.numerics.dtype == ("fp32" if said else "bf16")
    assert bool(said) == np.array_equal(vectors, whole) == (spread > 1)
    assert cosine_similarity(torch.from_numpy(vectors), torch.from_numpy(whole)).min() > 0.9999
    for line in said:
        assert line.startswith(
            "retriever: bf16 with matmul precision highest is not used; its vectors are off by 1 - "
        )
        assert line.endswith("expected less than 1e-04")


def test_faster_fp32_is_used_where_it_is_as_good_as_exact(folder, monkeypatch, capsys):
    """Else it is left with a line."""
    monkeypatch.setattr(encoder, "_difference", lambda vectors, exact: 2e-6)
    monkeypatch.setattr(encoder, "CLOSER", 3e-6)
    assert open_encoder(folder).numerics == Numerics("fp32", "medium")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(encoder, "CLOSER", 1e-6)
    assert open_encoder(folder).numerics == encoder.EXACT
    assert "fp32 with matmul precision medium is not used" in capsys.readouterr().out


def test_the_precision_of_other_models_products_stays_as_it_was(folder):
    assert torch.get_float32_matmul_precision() == "highest"
    fast, seen = open_encoder(folder, Numerics("fp32", "medium")), []
    fast.documents.model.register_forward_hook(
        lambda *_: seen.append(torch.get_float32_matmul_precision())
    )
    fast.embed(["Velm"])
    assert seen == ["medium"]
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_folder_without_a_whole_encoder_is_named(folder, dpr, tmp_path):
    with pytest.raises(LongtailError, match=r"no config\.json"):
        open_encoder(tmp_path)
    bert, tower = (json.loads((source / "config.json").read_text()) for source in (folder, dpr[0]))
    for source, config, message in (
        (folder, bert | {"num_hidden_layers": 2}, r"no weights for .* of BertModel, encoder\.layer\.1"),
        (folder, bert | {"hidden_size": "wide"}, r"not an encoder: .*hidden_size"),
        (folder, {"model_type": "t5"}, r"t5 is no BERT-like encoder of texts alone"),
        (dpr[0], tower | {"architectures": ["DPRQuestionEncoder"]}, r"no weights for .* of DPRQuestionEncoder"),
        (dpr[0], tower | {"architectures": ["DPRReader"]}, r"says DPRReader, expected one of DPR's encoders"),
    ):  # fmt: skip
        broken = shutil.copytree(source, tmp_path / "broken", dirs_exist_ok=True)
        (broken / "config.json").write_text(json.dumps(config))
        with pytest.raises(LongtailError, match=message):
            open_encoder(broken)


WORDS = [
    "".join(pair)
    for pair in zip("bcdfghjklmnp" * 5, "aeioubcdfg" * 6, "klmnprstvzxw" * 5, strict=True)
]


@pytest.mark.usefixtures("workplace")
def test_what_can_not_be_copied_is_refused(tmp_path):
    one, other = (
        str(tiny_models.encoder(tmp_path / name, size=size))
        for name, size in (("one", 32), ("other", 16))
    )
    for changes, message in (
        ({"path": "some/encoder"}, r"retriever\.revision is null"),
        ({"path": one, "query_path": "some/encoder"}, r"retriever\.query_revision is null"),
        (
            {"path": one, "query_path": other},
            r"its vectors have 16 numbers, those of retriever\.path 32",
        ),
    ):
        with pytest.raises(LongtailError, match=message):
            base_retriever.copy_pretrained(tiny_models.retriever(**changes), tmp_path / "retriever")
        assert not (tmp_path / "retriever").exists()


def test_on_a_gpu_batches_follow_its_memory(folder, monkeypatch):
    """The CPU has the memory of a GPU. Texts are tokenised in a thread, window by window."""
    texts = [*TEXTS, *tiny_models.words(60, 1, at_most=25)]
    expected = open_encoder(folder, EXACT).embed(texts)
    weights = sum(weight.nbytes for weight in open_encoder(folder, EXACT).parameters())
    monkeypatch.setattr(encoder, "WINDOW", 16)
    sizes = []
    for memory in (weights + 10**5, weights + 10**8):
        monkeypatch.setattr(devices, "total_memory", lambda device, memory=memory: memory)
        opened = open_encoder(folder, EXACT)
        shapes = []
        opened.documents.model.register_forward_pre_hook(
            lambda _, args, inputs, shapes=shapes: shapes.append(inputs["input_ids"].shape),
            with_kwargs=True,
        )
        np.testing.assert_allclose(opened.embed(texts), expected, atol=1e-5)
        sizes.append(max(rows for rows, _ in shapes))
    assert sizes[0] < sizes[1] == 16


def test_on_a_gpu_weights_are_cast_to_bf16_once(folder, monkeypatch):
    """An encoder in training keeps them in fp32."""
    expected = open_encoder(folder, EXACT).embed(TEXTS)
    monkeypatch.setattr(devices, "total_memory", lambda device: 10**9)
    opened = open_encoder(folder, BF16)
    assert opened.documents.model.dtype == torch.bfloat16
    cosines = cosine_similarity(torch.from_numpy(opened.embed(TEXTS)), torch.from_numpy(expected))
    assert cosines.min() > 0.999
    assert open_encoder(folder, EXACT).documents.model.dtype == torch.float32
