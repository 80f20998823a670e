"""Training tunes one retriever: the small project's params are those for the retriever dense."""

import pytest

from pipelines import methods


@pytest.fixture
def project(project):
    project.params = methods.with_retriever(project.params, "dense")
    return project
