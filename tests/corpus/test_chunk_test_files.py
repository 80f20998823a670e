"""A published test split is kept: its files' documents are queries, all of their text, the others the corpus."""

from pathlib import Path

import pytest
from corpora import assert_same_bytes, chosen, joined, make, text_of, write_pile

from pipelines.corpus import sample
from pipelines.errors import LongtailError

pytestmark = pytest.mark.usefixtures("project")


def article(number: int) -> str:
    return f" \n = Article {number} = \n \n {text_of(number).strip()} . \n"


def write_wikitext(train: list[str], test: list[str]) -> None:
    Path("raw/wikitext").mkdir(parents=True, exist_ok=True)
    Path("raw/wikitext/1.train.tokens").write_text("".join(train))
    Path("raw/wikitext/2.test.tokens").write_text("".join(test))


def settings(workers: int = 1, **given):
    return chosen(workers, share=0.0, query_files="*test*", **given)


def test_the_files_say_what_is_corpus_and_what_is_queries(tokenizer: Path) -> None:
    train, test = [article(i) for i in range(40)], [article(i) for i in range(40, 60)]
    write_wikitext(train, test)
    metrics, docs, queries, rejects = make(tokenizer, settings(), "wikitext")
    assert sorted(joined(docs).values()) == sorted(train)
    assert {doc["title"] for doc in docs} == {f"Article {i}" for i in range(40)}
    assert {query["split"] for query in queries} == {"test"}
    assert len({query["source_document"] for query in queries}) == 20
    assert (metrics["rows"], metrics["source_documents"], rejects) == (60, 40, [])
    make(tokenizer, settings(2), "wikitext", "two")
    assert_same_bytes("out", "two")


def test_the_continuations_are_all_of_the_test_split_but_its_first_contexts(tokenizer: Path) -> None:
    test = [article(i) for i in range(40, 60)]
    write_wikitext([article(1)], test)
    _, _, queries, _ = make(tokenizer, settings(per_document=1), "wikitext")
    queries_of: dict[str, list[dict]] = {}
    for query in sorted(queries, key=lambda query: int(query["id"].split(":")[1])):
        queries_of.setdefault(query["source_document"], []).append(query)
    texts = {
        queries[0]["context"] + "".join(query["continuation"] for query in queries) for queries in queries_of.values()
    }
    assert texts == set(test)
    for queries in queries_of.values():
        before = queries[0]["context"]
        for query in queries:
            assert before.endswith(query["context"])
            before += query["continuation"]


def test_of_a_copy_and_a_near_copy_in_the_other_split_one_goes_and_is_counted(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = [article(i) for i in range(40)], [article(i) for i in range(40, 60)]
    near = test[4].replace(" . \n", " and ! \n")
    write_wikitext([*train, test[3], near], test)
    monkeypatch.setattr(sample, "CHARACTERS_PER_TOKEN", 0.5)  # a cap that takes several rounds
    for documents in (None, 150):
        metrics, docs, queries, _ = make(tokenizer, settings(documents=documents), "wikitext")
        shqueries = set(joined(docs).values())
        first = {query["context"] for query in queries if query["id"].endswith(":0")}
        assert metrics["duplicates"] == 1
        assert test[3] not in shqueries
        assert any(test[3].startswith(context) for context in first)
        assert metrics["near_duplicate_sources"] == (near in shqueries)
        assert any(test[4].startswith(context) for context in first) == (near not in shqueries)


def test_a_glob_that_names_no_file_is_an_error_before_any_work(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(10)])
    with pytest.raises(
        LongtailError, match=r"corpus\.pile\.query_files is \*test\*, expected a glob that names a file"
    ):
        make(tokenizer, settings())
    assert not Path(".longtail/shards").exists()


def test_the_real_wikitext_2(real: Path, tokenizer: Path) -> None:
    Path("raw").mkdir()
    Path("raw/wikitext").symlink_to(real / "wikitext-2")
    metrics, docs, queries, _ = make(tokenizer, settings(max_per_split=10**6), "wikitext")
    assert [metrics[name] for name in ("rows", "duplicates", "near_duplicate_sources", "duplicate_queries")] == [
        120,
        0,
        0,
        0,
    ]
    whole = {split: (real / f"wikitext-2/wikitext-2.{split}.txt").stat().st_size for split in ("valid", "test")}
    assert metrics["bytes"] == whole["valid"]
    firsts = [query["context"] for query in queries if query["id"].endswith(":0")]
    assert len(firsts) == metrics["source_documents"] == 60
    assert sum(len(part.encode()) for part in [*firsts, *(q["continuation"] for q in queries)]) == whole["test"]
    assert {doc["source_document"] for doc in docs}.isdisjoint(query["source_document"] for query in queries)
