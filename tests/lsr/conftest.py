"""Training tunes one retriever: the small project's params are those for the retriever dense."""

from contextlib import contextmanager

import pytest
from lsr_training import wired

from pipelines import methods
from pipelines.lsr import ranks


@pytest.fixture
def project(project):
    project.params = methods.with_retriever(project.params, "dense")
    return project


@pytest.fixture
def ranks_in_threads(monkeypatch):
    """The processes that train side by side are threads."""

    @contextmanager
    def started(work, size, device):
        with wired(size, monkeypatch) as wire:
            places = [ranks.Ranks(rank, size, device) for rank in range(size)]
            for place in places:
                place.join()
            others = [wire.begin(lambda place=place: work(place), place.rank) for place in places[1:]]
            yield places[0]
            places[0].tell(None)
            assert [other.result() for other in others] == [None] * (size - 1)

    monkeypatch.setattr(ranks, "started", started)
