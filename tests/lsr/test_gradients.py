"""A batch in parts, or shared by copies of the encoder, has the gradient of the whole; bf16 has nearly fp32's."""

import pytest
import tiny_models
import torch

from pipelines.lsr.gradients import Gradients
from pipelines.lsr.objective import lsr_loss
from pipelines.lsr.refresh import RETRIEVER
from pipelines.retrieval.encoder import Encoder

DOCUMENTS, QUERIES = tiny_models.words(11, 1, at_least=1), tiny_models.words(4, 2, at_least=3)


@pytest.fixture
def gradient(project):
    """Of LSR's loss over all weights, as one vector; and the most texts that were embedded with gradient at once."""
    targets = torch.linspace(-2, 2, 4 * 11).view(4, 11).sin()

    def of(copies=0, **changes):
        sizes = []
        encoder, *others = [
            Encoder.open(RETRIEVER, project.params.retriever, project.params.compute) for _ in range(1 + copies)
        ]
        for weight in [weight for other in others for weight in other.parameters()]:
            weight.data.zero_()  # each step begins with the first one's

        def watch(one):
            real = one.embed_with_gradient

            def counted(texts, queries=False):
                vectors = real(texts, queries)
                sizes.append(len(texts) * vectors.requires_grad)
                return vectors

            one.embed_with_gradient = counted

        def loss(documents, queries):
            return lsr_loss(queries @ documents.T, targets, 0.1, 0.5, "q_p")

        for one in (encoder, *others):
            watch(one)
        settings = project.params.lsr.model_copy(update=changes)
        Gradients(encoder, others, settings).backward(DOCUMENTS, QUERIES, loss)
        assert all(weight.grad is None for other in others for weight in other.parameters())
        return torch.cat([w.grad.ravel() for w in encoder.parameters() if w.grad is not None]), max(sizes)

    return of


@pytest.mark.parametrize("size", [1, 3, 14])
def test_parts_have_the_gradient_of_the_whole(gradient, size):
    whole, _ = gradient()
    parts, most = gradient(micro_batch=size)
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-4)
    assert most <= size


@pytest.mark.parametrize(
    ("copies", "size", "at_once"), [(1, None, 6), (1, 8, 6), (1, 7, 6), (2, 2, 2), (5, 1, 1), (5, None, 2)]
)
def test_copies_have_it_too_and_the_same_each_time(gradient, copies, size, at_once):
    whole, _ = gradient()
    shared, most = gradient(copies, micro_batch=size)
    torch.testing.assert_close(shared, whole, atol=1e-6, rtol=1e-4)
    assert most == at_once
    assert torch.equal(gradient(copies, micro_batch=size)[0], shared)


def test_bf16_is_near_and_its_parts_and_copies_too(gradient):
    exact, _ = gradient()
    for copies, size in ((0, None), (0, 3), (1, None), (1, 3)):
        near, _ = gradient(copies, dtype="bf16", micro_batch=size)
        assert not torch.equal(near, exact)
        assert near.dtype == torch.float32
        assert torch.cosine_similarity(near, exact, dim=0) > 0.98
