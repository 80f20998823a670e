"""A batch embedded in parts has the gradient of the whole; bf16 has nearly fp32's."""

import pytest
import tiny_models
import torch

from pipelines.replug import gradients
from pipelines.replug.objective import lsr_loss
from pipelines.retrieval.encoder import Encoder

DOCUMENTS, QUERIES = tiny_models.words(11, 1, at_least=1), tiny_models.words(4, 2, at_least=3)


@pytest.fixture
def gradient(project):
    """Of LSR's loss over all weights, as one vector; and the most texts that were embedded with gradient at once."""
    encoder = Encoder.open(project.folder / "data/models/retriever", project.params.retriever, project.params.compute)
    targets = torch.linspace(-2, 2, 4 * 11).view(4, 11).sin()

    def of(**changes):
        real, sizes = encoder.embed_with_gradient, []

        def counted(texts, queries=False):
            vectors = real(texts, queries)
            sizes.append(len(texts) * vectors.requires_grad)
            return vectors

        def loss(documents, queries):
            return lsr_loss(queries @ documents.T, targets, 0.1, 0.5, "q_p")

        encoder.embed_with_gradient = counted
        for weight in encoder.parameters():
            weight.grad = None
        gradients.backward(encoder, DOCUMENTS, QUERIES, loss, project.params.lsr.model_copy(update=changes))
        encoder.embed_with_gradient = real
        return torch.cat([w.grad.ravel() for w in encoder.parameters() if w.grad is not None]), max(sizes)

    return of


@pytest.mark.parametrize("size", [1, 3, 14])
def test_parts_have_the_gradient_of_the_whole(gradient, size):
    whole, _ = gradient()
    parts, most = gradient(micro_batch=size)
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-4)
    assert most <= size


def test_bf16_is_near_and_its_parts_too(gradient):
    exact, _ = gradient()
    for size in (None, 3):
        near, _ = gradient(dtype="bf16", micro_batch=size)
        assert not torch.equal(near, exact)
        assert near.dtype == torch.float32
        assert torch.cosine_similarity(near, exact, dim=0) > 0.98
