"""A published test split is kept, and rolling windows predict each of its bytes once."""

from pathlib import Path

import pytest
from corpora import chosen, joined, make, text_of, write_pile

from pipelines.corpus import chunk
from pipelines.corpus.token_bytes import open_encoder
from pipelines.errors import LongtailError

pytestmark = pytest.mark.usefixtures("project")


def article(number: int) -> str:
    return f" \n = Article {number} = \n \n {text_of(number).strip()} . \n"


TRAIN, TEST = [article(i) for i in range(40)], [article(i) for i in range(40, 60)]


def write_wikitext(train: list[str], test: list[str]) -> None:
    Path("raw/wikitext").mkdir(parents=True, exist_ok=True)
    Path("raw/wikitext/1.train.tokens").write_text("".join(train))
    Path("raw/wikitext/2.test.tokens").write_text("".join(test))


def settings(**given):
    return chosen(share=0.0, test_files="*test*", **given)


def windows_of(queries: list[dict]) -> dict[str, list[dict]]:
    """The test windows of each source document, in their order."""
    of_document: dict[str, list[dict]] = {}
    for query in sorted(queries, key=lambda query: int(query["id"].rpartition(":")[2])):
        if query["split"] == "test":
            of_document.setdefault(query["source_document"], []).append(query)
    return of_document


@pytest.mark.parametrize("first", [True, False])
def test_each_byte_of_the_test_split_is_predicted_once(tokenizer, first):
    write_wikitext(TRAIN, TEST)
    metrics, docs, queries, rejects = make(
        tokenizer, settings(first=first, titles=first), "wikitext"
    )
    assert sorted(joined(docs).values()) == sorted(TRAIN)
    assert {doc["title"] for doc in docs} == (
        {f"Article {i}" for i in range(40)} if first else {""}
    )
    assert {query["split"] for query in queries} == {"test"}
    assert (metrics["rows"], metrics["source_documents"], rejects) == (60, 40, [])
    windows = windows_of(queries)
    texts = {
        of[0]["context"] + "".join(query["continuation"] for query in of) for of in windows.values()
    }
    assert texts == set(TEST)
    for of_document in windows.values():
        before = of_document[0]["context"]
        assert (before == "") == first
        for query in of_document:
            assert before.endswith(query["context"])
            before += query["continuation"]


def test_joined_lines_have_a_single_first_window(tokenizer):
    """Each text of so many lines has one, and each window is a unit of intervals."""
    write_wikitext(TRAIN[:2], TEST[:4])
    _, docs, queries, _ = make(tokenizer, settings(test_lines=15), "wikitext")
    assert sorted(joined(docs).values()) == sorted(TRAIN[:2])
    assert sum(query["context"] == "" for query in queries) == 2  # of 20 lines
    assert all(query["source_document"] == query["id"] for query in queries)


def test_a_test_window_knows_the_tokens_before_its_context(tokenizer):
    """They end where the context begins, so they never hold the continuation; near the beginning
    they are fewer.
    """
    write_wikitext(TRAIN[:1], TEST)
    params, sizes = settings(), set()
    _, _, queries, _ = make(tokenizer, params, "wikitext")
    encode = open_encoder(tokenizer)
    for of_document in windows_of(queries).values():
        text = "".join(query["continuation"] for query in of_document)
        bounds, continuation = encode([text])[0].bounds.tolist(), 0
        for query in of_document:
            context = continuation - len(query["context"].encode())
            first = max(bounds.index(context) - params.chunk.tokens, 0)
            # no cut is inside a character
            first = max(i for i in range(first + 1) if bounds[i] >= 0)
            assert query["before"].encode() == text.encode()[bounds[first] : context]
            sizes.add(bounds.index(context) - first)
            continuation += len(query["continuation"].encode())
    assert {0, params.chunk.tokens} < sizes


def test_a_copy_in_the_other_split_goes_and_is_counted(tokenizer, monkeypatch):
    near = TEST[4].replace(" . \n", " and ! \n")
    write_wikitext([*TRAIN, TEST[3], near], TEST)
    monkeypatch.setattr(chunk, "FIRST_ROUND", 0.05)  # a cap that takes several rounds
    for documents in (None, 150):
        metrics, docs, queries, _ = make(tokenizer, settings(documents=documents), "wikitext")
        kept = set(joined(docs).values())
        first = {query["continuation"] for query in queries if query["id"].endswith(":0")}
        assert metrics["duplicates"] == 1
        assert TEST[3] not in kept
        assert any(TEST[3].startswith(begin) for begin in first)
        assert metrics["near_duplicate_sources"] == (near in kept)
        assert any(TEST[4].startswith(begin) for begin in first) == (near not in kept)


def test_a_glob_that_names_no_file_is_an_error_before_any_work(tokenizer):
    write_pile([text_of(i) for i in range(10)])
    with pytest.raises(
        LongtailError,
        match=r"corpus\.pile\.test_files is \*test\*, expected a glob that names a file",
    ):
        make(tokenizer, settings())
    assert not Path(".longtail/work").exists()
