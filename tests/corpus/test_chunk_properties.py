"""Whatever the texts: nothing is lost in cutting, no source is in two splits, four workers write the same bytes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from corpora import assert_same_bytes, chosen, joined, make, splits_of, text_of, write_pile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import params, pool
from pipelines.corpus import chunk
from pipelines.errors import LongtailError
from pipelines.sources.text_documents import text_id

pytestmark = pytest.mark.usefixtures("project")
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), min_size=1, max_size=12, unique=True)
ANY_TEXTS = TEXTS.filter(lambda texts: any(text.strip() for text in texts))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=ANY_TEXTS, tokens=st.integers(1, 40), least=st.integers(1, 40), short=st.sampled_from(["merge", "drop"]))
def test_any_texts_are_cut_without_loss(tokenizer: Path, texts: list[str], tokens: int, least: int, short: str) -> None:
    write_pile(texts)
    given_ = chosen(share=0.0)
    given_.ingest = params.Ingest(max_reject_share=1.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000)
    given_.chunk = params.Chunk(tokens=tokens, min_tokens=min(least, tokens), short=short)
    with suppress_empty():
        metrics, docs, _, rejects = make(tokenizer, given_)
        shown = joined(docs)
        assert len(shown) + len(rejects) == len(texts)
        for name, text in shown.items():
            whole = {text_id(one): one for one in texts}[name]
            assert text == whole if short == "merge" else whole.startswith(text)
        assert metrics["bytes"] == sum(len(text.encode()) for text in shown.values())


@contextmanager
def suppress_empty():
    try:
        yield
    except LongtailError as error:
        if "no documents for the corpus" not in str(error):
            raise


@pytest.fixture
def one_or_four(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One pool of four workers for all texts: to start it for each would be all that the test does."""
    with pool.processes(chosen(4).compute) as four:
        monkeypatch.setattr(chunk, "processes", lambda compute, _: nullcontext(four if compute.workers == 4 else None))
        yield


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS, more=st.integers(0, 1000))
def test_any_texts_give_disjoint_splits_and_the_same_bytes_with_four_workers(
    tokenizer: Path, one_or_four, texts: list[str], more: int
) -> None:
    texts += [text_of(i) for i in range(more, more + 100)]
    shutil.rmtree("raw", ignore_errors=True)
    for part in range(3):
        write_pile(texts[part::3], f"{part}.jsonl.zst")
    results = []
    for workers in (1, 4):
        given_ = chosen(workers)
        given_.ingest = params.Ingest(max_reject_share=1.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000)
        results.append(make(tokenizer, given_, out=str(workers)))
    assert results[0] == results[1]
    assert_same_bytes("1", "4")
    splits = splits_of(results[0][2], results[0][1])
    assert sum(map(len, splits.values())) == len(set().union(*splits.values()))
