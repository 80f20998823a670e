"""Every kind of index finds as much of what comparing with all finds as was asked for, in the
memory there is.
"""

import re

import faiss
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tiny_models
import torch
import vectors

from pipelines.errors import LongtailError
from pipelines.retrieval import dense, dense_build, dense_tuning
from pipelines.retrieval.dense_build import FLAT_UP_TO, GIB, choose_index
from pipelines.retrieval.encoder import Encoder
from pipelines.work import devices

KINDS = ("flat", "ivf")
COUNT = 3000
DOCUMENTS = vectors.clustered(COUNT).astype(np.float16).astype(np.float32)
DOCUMENTS[2000:2040] = DOCUMENTS[0]  # the same embedding many times
QUERIES = vectors.clustered(COUNT, 0)[::10] + 0.1 * np.random.default_rng(1).normal(
    size=(300, vectors.DIM)
)


def build(folder, queries, kind, name="index"):
    flat_up_to = 1 if kind == "ivf" else FLAT_UP_TO
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_build, "FLAT_UP_TO", flat_up_to)
        return _build(folder, queries, name)


def _build(folder, queries, name):
    return dense_build.build_and_tune(
        folder,
        lambda: queries,
        memory_gb=vectors.MEMORY_GB,
        compute=vectors.compute(),
        seed=0,
        name=name,
    )


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """(index, what meta.json says of it) by kind."""
    indexes = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        for kind in KINDS:
            indexes[kind] = build(
                vectors.write(tmp_path_factory.mktemp(kind), DOCUMENTS), QUERIES, kind
            )
    return indexes


def brute_force(queries, k, hidden=None):
    scores = np.round(queries.astype(np.float32) @ DOCUMENTS.T, dense.SCORE_DECIMALS)
    for row, (first, last) in zip(scores, () if hidden is None else hidden, strict=False):
        row[first:last] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_reaches_the_recall_asked_for(indexes, kind):
    index, facts = indexes[kind]
    asked = QUERIES[1::2]  # those that chose nothing
    positions, scores = index.search(asked, 10)
    best = brute_force(asked, 10)[1]
    reached = (scores >= best[:, -1:] - 2 * 10**-dense.SCORE_DECIMALS).mean()
    assert reached == pytest.approx(facts["recall_at_10"], abs=2e-3)
    assert reached >= 0.95
    assert index.probe < 76  # of as many lists
    exact = np.einsum("qd,qkd->qk", asked, DOCUMENTS[positions])
    # whatever the kind, the score is the embedding's
    np.testing.assert_allclose(scores, exact, atol=2e-5)
    alone = [
        np.concatenate(part)
        for part in zip(*(index.search(q[None], 10) for q in asked[:20]), strict=True)
    ]
    np.testing.assert_array_equal(positions[:20], alone[0])
    np.testing.assert_array_equal(scores[:20], alone[1])
    # equal documents go by position, however many they are
    same = index.search(DOCUMENTS[:1], 5)[0][0]
    assert set(same) <= {0, *range(2000, 2040)}
    assert kind != "flat" or same.tolist() == [0, 2000, 2001, 2002, 2003]


@hypothesis.given(
    kind=st.sampled_from(KINDS),
    k=st.one_of(st.integers(1, 60), st.sampled_from([COUNT - 1, COUNT, COUNT + 7])),
    rows=st.lists(st.integers(0, 299), max_size=5),
    first=st.integers(0, COUNT),
    size=st.one_of(st.integers(0, 100), st.sampled_from([COUNT // 2, COUNT - 3, COUNT])),
)
def test_any_k_any_queries_any_range_left_out(indexes, kind, k, rows, first, size):
    index, _ = indexes[kind]
    queries = QUERIES[rows].reshape(-1, vectors.DIM)
    hidden = np.tile([first, min(COUNT, first + size)], (len(rows), 1)).reshape(-1, 2)
    positions, scores = index.search(queries, k, hidden)
    assert positions.shape == scores.shape == (len(rows), min(k, COUNT))
    n_visible = COUNT - (min(COUNT, first + size) - first)
    for row, row_scores in zip(positions, scores, strict=True):
        found = row[row >= 0]
        assert len(found) == len(set(found)) == min(k, n_visible)
        assert not ((found >= first) & (found < first + size)).any()
        assert (row[len(found) :] == -1).all()
        assert np.isneginf(row_scores[len(found) :]).all()
        order = np.lexsort((found, -row_scores[: len(found)]))
        assert (order == np.arange(len(found))).all()
    if kind == "flat":
        expected = brute_force(queries, min(k, COUNT), hidden)
        np.testing.assert_allclose(scores, expected[1], atol=2e-5)


def test_scores_that_are_equal_but_for_noise_go_by_position_too(tmp_path):
    alike = np.zeros((60, vectors.DIM), np.float32)
    # the later the better, by less than a score tells
    alike[:, 0], alike[:, 1] = (0.25, np.arange(60) * 2.0**-24)
    index = dense.Index(vectors.write(tmp_path / "alike", alike))
    assert index.search(np.eye(1, vectors.DIM) + np.eye(1, vectors.DIM, 1), 3)[0].tolist() == [
        [0, 1, 2]
    ]


@pytest.fixture
def agrees_with_faiss(tmp_path, monkeypatch):
    """A function that compares a flat search, in small blocks and batches, with FAISS's:
    documents, queries, k.
    """
    for name, size in {
        "BLOCK_EMBEDDINGS": 300,
        "QUERIES_PER_BLOCK": {"cpu": 7},
        "CANDIDATES_HELD": 4000,
    }.items():
        monkeypatch.setattr(dense, name, size)

    def agrees(documents: np.ndarray, queries: np.ndarray, k: int) -> None:
        stored = documents.astype(np.float16).astype(np.float32)
        flat = faiss.IndexFlatIP(stored.shape[1])
        flat.add(stored)
        scores, ids = flat.search(queries.astype(np.float32), len(stored))
        # FAISS leaves ties in any order
        order = np.lexsort((ids, -np.round(scores, dense.SCORE_DECIMALS)), axis=1)[:, :k]
        positions, found = dense.Index(vectors.write(tmp_path / "flat", documents)).search(
            queries, k
        )
        np.testing.assert_allclose(found, np.take_along_axis(scores, order, 1), atol=2e-5)
        np.testing.assert_array_equal(positions, np.take_along_axis(ids, order, 1))

    return agrees


@pytest.mark.parametrize("copies", [1, 90])
def test_a_flat_search_has_the_neighbours_of_faisss_index(copies, agrees_with_faiss):
    """Of ties there are more than a first search holds candidates."""
    draw = np.random.default_rng(0)
    # sums are exact
    documents = np.repeat(np.sign(draw.normal(size=(1000 // copies, vectors.DIM))) / 8, copies, 0)
    documents += (copies == 1) * draw.normal(size=documents.shape)
    agrees_with_faiss(draw.permutation(documents), np.sign(draw.normal(size=(40, vectors.DIM))), 20)


@pytest.mark.realweights
def test_a_flat_search_agrees_with_faiss_on_real_vectors(root, real_models, agrees_with_faiss):
    settings = tiny_models.retriever(
        path=str(real_models / "minilm"), similarity="cosine", dtype="fp32"
    )
    encoder = Encoder.open(real_models / "minilm", settings, tiny_models.compute())
    lines = [line for line in (root / "docs/params.md").read_text().splitlines() if len(line) > 60]
    embedded = encoder.embed(lines)
    agrees_with_faiss(
        np.concatenate([embedded, embedded[::7]]), encoder.embed_queries(lines[::5]), 20
    )


@pytest.mark.usefixtures("workplace")
def test_a_recall_out_of_reach_is_said(tmp_path, capsys, monkeypatch):
    folder = vectors.write(tmp_path / "a", DOCUMENTS[:1500])
    monkeypatch.setattr(dense_tuning, "_powers", lambda most: [1])
    index, facts = build(folder, QUERIES[:100], "ivf", "index@a")
    assert (index.probe, index.refine, facts["nlist"]) == (1, 1, 38)
    # one list has fewer: all of them are looked at
    assert (index.search(QUERIES[:5], 200)[0] >= 0).all()
    index.refine = 7
    assert index.candidates(QUERIES[:2], 20, 56, 38).shape == (2, 140)
    printed = capsys.readouterr().out
    assert f"warning: index@a: recall@10 is {facts['recall_at_10']:.3f}, below 0.95" in printed
    assert "index@a: ivf: 1,500 documents of 32 dimensions" in printed


@pytest.mark.parametrize(
    ("count", "dim", "memory_gb", "kind", "codes"),
    [
        (FLAT_UP_TO - 1, 768, 4, "flat", 0),
        (FLAT_UP_TO, 768, 4, "ivf", 384),
        (36_000_000, 768, 24, "ivf", 384),
        (367_000_000, 384, 24, "ivf", 96),  # codes of four dimensions
        (200_001, 300, 4, "ivf", 150),
    ],
)
def test_auto_takes_the_finest_that_fits(count, dim, memory_gb, kind, codes):
    plan = choose_index(count, dim, float(memory_gb))
    assert (plan.kind, plan.codes) == (kind, codes)
    assert plan.memory <= memory_gb * GIB
    assert f"{kind}: {count:,} documents of {dim} dimensions" in plan.reason


def test_the_guide_has_what_each_index_takes(root):
    page = (root / "docs/passages.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d[\d,]+) \| (.+) \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for count, cells in rows:
        dim, memory, disk, dimensions = map(float, cells.split(" | "))
        plan = choose_index(int(count.replace(",", "")), int(dim), 24.0)
        assert dim / plan.codes == dimensions
        assert plan.memory / GIB == pytest.approx(memory, abs=0.05)
        bytes_per_document = 2 * dim + plan.codes / 2 + 8  # embedding, codes, position
        assert plan.count * bytes_per_document / GIB == pytest.approx(disk, rel=0.02)


def test_an_index_that_does_not_fit_is_refused():
    message = r"of 367,000,000 documents of 768 dimensions takes 12\.3 GiB, expected at most"
    with pytest.raises(LongtailError, match=message):
        choose_index(367_000_000, 768, 10.0)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_gpu_holds_embeddings_that_fit_and_finds_the_same(tmp_path, monkeypatch, is_held):
    """The CPU has the memory of a GPU; the products of its queries' two parts are summed."""
    draw = np.random.default_rng(0)
    documents = np.repeat(draw.normal(size=(300, vectors.DIM)), 3, 0)  # with ties
    queries = draw.normal(size=(20, vectors.DIM)).astype(np.float32)
    hidden = np.stack([np.arange(20), np.arange(20) + 40], 1)
    folder = vectors.write(tmp_path / "flat", documents)
    expected = dense.Index(folder).search(queries, 10, hidden)

    n_bytes = 2 * documents.size
    fitting = n_bytes if is_held else n_bytes - 1
    monkeypatch.setattr(devices, "total_memory", lambda device: 10**9)
    monkeypatch.setattr(devices, "held_memory", lambda device: fitting)
    monkeypatch.setattr(dense, "BLOCK_ON_GPU", 200)
    index = dense.Index(folder)
    reads = []
    read_rows = index.embeddings.rows
    monkeypatch.setattr(
        index.embeddings, "rows", lambda *args: reads.append(args) or read_rows(*args)
    )
    for _ in range(2):
        positions, scores = index.search(queries, 10, hidden)
        np.testing.assert_array_equal(positions, expected[0])
        np.testing.assert_array_equal(scores, expected[1])
    n_blocks = -(-len(documents) // 200)
    assert len(reads) == (n_blocks if is_held else 2 * n_blocks)

    beside = dense.Index(folder)  # both do not fit
    np.testing.assert_array_equal(beside.search(queries, 10, hidden)[0], expected[0])
    assert not beside._held
    del index
    beside.search(queries, 10, hidden)
    assert bool(beside._held) == is_held


def test_a_query_is_the_sum_of_two_parts_for_tensor_cores(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    queries = torch.from_numpy(draw.normal(size=(9, vectors.DIM))).float()
    high, low = dense.split(queries)
    torch.testing.assert_close(high + low, queries, rtol=0, atol=0)
    torch.testing.assert_close(high.half().float(), high, rtol=0, atol=0)  # 10 bits are enough
    assert (low.abs() <= 2.0**-10 * high.abs()).all()

    monkeypatch.setattr(devices, "total_memory", lambda device: 10**9)
    index = dense.Index(vectors.write(tmp_path / "flat", draw.normal(size=(5, vectors.DIM))))
    block = index.embeddings.rows(0, 5).T
    products = index._products(queries, torch.from_numpy(block))
    np.testing.assert_allclose(products, queries.numpy() @ block, atol=1e-5)
