"""LSR's objective is the paper's formula; computed in parts it has the same gradient."""

import numpy as np
import pytest
import tiny_models
import torch
from small_project import UNTUNED

from pipelines.lsr.objective import backward, entropy, likelihood, lsr_loss
from pipelines.retrieval.encoder import Encoder
from pipelines.work import devices

DOCUMENTS, QUERIES = tiny_models.words(11, 1, at_least=1), tiny_models.words(4, 2, at_least=3)


@pytest.mark.parametrize("kl", ["q_p", "p_q"])
@pytest.mark.parametrize("kind", ["mean_logprob", "sum_logprob", "prob"])
def test_gradients_equal_finite_differences(kl, kind):
    draw = np.random.default_rng(0)
    sums, tokens = -draw.gamma(3.0, size=(3, 6)), draw.integers(1, 5, size=(3, 6))
    targets = torch.from_numpy(likelihood(sums, tokens, kind))
    similarities = torch.tensor(draw.normal(size=(3, 6)), requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda given: lsr_loss(given, targets, 0.3, 0.4, kl), similarities
    )


def test_the_loss_is_the_divergence_in_the_named_direction():
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4])
    similarities, targets = (
        torch.log(torch.tensor(p))[None] * 0.1,
        torch.log(torch.tensor(q))[None] * 0.2,
    )
    assert float(lsr_loss(similarities, targets, 0.1, 0.2, "q_p")) == pytest.approx(
        (q * np.log(q / p)).sum()
    )
    assert float(lsr_loss(similarities, targets, 0.1, 0.2, "p_q")) == pytest.approx(
        (p * np.log(p / q)).sum()
    )
    for kl in ("q_p", "p_q"):
        alike = similarities.clone().requires_grad_()
        loss = lsr_loss(alike, similarities * 5 + 2, 0.1, 0.5, kl)
        loss.backward()
        assert float(loss.detach()) == pytest.approx(0, abs=1e-12)
        assert alike.grad.abs().max() < 1e-12


def test_likelihoods_are_per_token_whole_or_a_probability():
    sums, tokens = np.array([[-6.0, -3.0]]), np.array([[3, 3]])
    assert likelihood(sums, tokens, "mean_logprob").tolist() == [[-2, -1]]
    assert likelihood(sums, tokens, "sum_logprob") is sums
    np.testing.assert_allclose(likelihood(sums, tokens, "prob"), np.exp(sums))


def test_entropy_is_a_share_of_the_uniform_ones():
    assert entropy(np.zeros((2, 7)), 0.1) == pytest.approx(1)
    assert entropy(np.array([[0.0, 90.0]]), 0.1) == pytest.approx(0, abs=1e-9)
    assert entropy(np.array([[0.0, 0.1 * np.log(3)]]), 0.1) == pytest.approx(
        0.811278
    )  # 1/4 and 3/4, in bits


def tokens(encoder):
    return encoder.tokens(DOCUMENTS), encoder.tokens(QUERIES, queries=True)


@pytest.fixture
def gradient(project):
    """The gradient of LSR's loss over all weights, as one vector, and the most tokens
    embedded with gradient at once.
    """
    targets = torch.linspace(-2, 2, 4 * 11).view(4, 11).sin()

    def compute(most_tokens=None, bf16=False):
        sizes, encoder = (
            [],
            Encoder.open(UNTUNED, project.params.retriever["dense"], project.params.compute),
        )
        embed = encoder.embed_with_gradient
        if most_tokens is not None:
            encoder.tokens_with_gradient = most_tokens

        def counted(tokens, queries=False):
            vectors = embed(tokens, queries)
            sizes.append(len(tokens.values) * vectors.requires_grad)
            return vectors

        def loss(documents, queries):
            return lsr_loss(
                queries @ documents.T, targets[: len(queries), : len(documents)], 0.1, 0.5, "q_p"
            )

        encoder.embed_with_gradient = counted
        backward(encoder, *tokens(encoder), loss, bf16=bf16)
        return torch.cat([w.grad.ravel() for w in encoder.parameters() if w.grad is not None]), max(
            sizes
        )

    return compute


def test_queries_are_embedded_as_queries(project):
    settings = project.params.retriever["dense"].model_copy(update={"query_prefix": "Norland: "})
    encoder, seen = Encoder.open(UNTUNED, settings, project.params.compute), []

    def loss(documents, queries):
        seen.extend((documents.detach().numpy().copy(), queries.detach().numpy().copy()))
        return (queries @ documents.T).sum()

    backward(encoder, *tokens(encoder), loss)
    np.testing.assert_allclose(seen[0], encoder.embed(DOCUMENTS), atol=1e-5)
    np.testing.assert_allclose(seen[1], encoder.embed_queries(QUERIES), atol=1e-5)
    assert np.abs(seen[1] - encoder.embed(QUERIES)).max() > 1e-2


def test_parts_have_the_gradient_of_the_whole(gradient):
    """Those in bf16 are near it."""
    whole, _ = gradient()
    assert whole.abs().max() > 1e-3
    for size in (48, 80, 120):
        parts, most = gradient(size)
        torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-4)
        assert most <= size
    for size in (None, 80):
        near, _ = gradient(size, bf16=True)
        assert near.dtype == torch.float32
        assert torch.cosine_similarity(near, whole, dim=0) > 0.98
        assert (near - whole).abs().max() > 1e-5


def test_a_gpu_embeds_as_many_texts_as_its_memory_holds(gradient, project, monkeypatch):
    """The CPU has the memory of a GPU: the weights in training, and 200 kB more."""
    whole, all_tokens = gradient()
    encoder = Encoder.open(UNTUNED, project.params.retriever["dense"], project.params.compute)
    in_training = 4 * sum(weight.nbytes for weight in encoder.parameters())
    monkeypatch.setattr(devices, "total_memory", lambda device: in_training + 200_000)
    parts, most = gradient()
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-4)
    assert 1 <= most < all_tokens
    monkeypatch.setattr(devices, "total_memory", lambda device: in_training + 10**9)
    assert gradient()[1] == all_tokens
