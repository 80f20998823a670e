"""A corpus is lossless, disjoint from its queries, the same for any number of processes, and its losses are counted."""

import bz2
import json
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows import profiles
from pipelines import params
from pipelines.corpus import read, sample
from pipelines.corpus.chunk import build
from pipelines.corpus.clean import wikitext_to_text
from pipelines.errors import LongtailError
from pipelines.lm.tokenizer import encode, open_tokenizer, train
from pipelines.sources.pile import text_id
from pipelines.sources.text import open_lines

ROOT = Path(__file__).resolve().parents[2]
COMMON = """the of river was born in city name old new king book who wrote first and house"""
WORDS = [*COMMON.split(), "é", "北京", "🙂"]


def text_of(number: int, words: int = 120) -> str:
    rng = np.random.default_rng(number)
    return " ".join(rng.choice(WORDS, words)) + f" {number}\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    train([text_of(i) for i in range(1000, 1020)], 320, folder)
    return folder


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(read, "BATCH_BYTES", 20_000)
    return tmp_path


def chosen(
    workers: int = 1, share: float = 0.5, documents: int | None = None, weights: dict | None = None, **queries
) -> SimpleNamespace:
    values = yaml.safe_load(profiles.compose("sample", ROOT))
    shares = {"validation_share": 0.2, "test_share": 0.3, "near_duplicate": 0.8}
    lengths = {"context_tokens": 16, "continuation_tokens": 16, "per_document": 2, "max_per_split": 1000}
    corpus = params.CorpusOf(documents=documents, weights=weights, query_share=share)
    return SimpleNamespace(
        seed=3,
        compute=params.Compute(**{**values["compute"], "threads": 1, "workers": workers}),
        ingest=params.Ingest(**{**values["ingest"], "max_reject_share": 0.1}),
        corpus=params.Corpus(wikipedia=corpus, pile=corpus),
        chunk=params.Chunk(tokens=32, min_tokens=8, short="merge"),
        queries=params.Queries(**shares, **{**lengths, **queries}),
    )


def write_pile(texts: list[str], name: str = "00.jsonl.zst", extra: bytes = b"") -> Path:
    path = Path("raw/pile") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"text": text, "meta": {"pile_set_name": f"Set{len(text) % 3}"}}) for text in texts]
    path.write_bytes(zstandard.compress("\n".join(rows).encode() + b"\n" + extra))
    return path


def write_wikipedia(pages: list[tuple[int, str, str]]) -> Path:
    path = Path("raw/wikipedia/dump.xml.bz2")
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(
        f"<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><id>1</id><text>{text}</text></revision></page>"
        for number, title, text in pages
    )
    path.write_bytes(bz2.compress(f"<mediawiki>{body}</mediawiki>".encode()))
    return path


def make(tokenizer: Path, settings: SimpleNamespace, name: str = "pile", out: str = "out"):
    metrics = build(Path("raw") / name, tokenizer, Path(out), name, settings)
    docs, queries, rejects = (pq.read_table(f"{out}/{kind}.parquet") for kind in ("docs", "queries", "rejects"))
    return metrics, docs.to_pylist(), queries.to_pylist(), rejects.to_pylist()


def joined(docs: list[dict]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for doc in docs:
        texts[doc["source_document"]] = texts.get(doc["source_document"], "") + doc["text"]
    return texts


def test_chunks_of_a_document_join_to_its_text_and_count_its_bytes(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(100)]
    write_pile(texts)
    metrics, docs, queries, rejects = make(tokenizer, chosen(share=0.0))
    assert sorted(joined(docs).values()) == sorted(texts)
    assert (queries, rejects) == ([], [])
    seen: dict[str, str] = {}
    for doc in docs:  # in the table's order, which is that of the offsets
        before = seen.get(doc["source_document"], "")
        assert doc["offset"] == len(before.encode())
        assert doc["id"] == f"{doc['source_document']}:{doc['offset']}"
        seen[doc["source_document"]] = before + doc["text"]
    assert len({doc["id"] for doc in docs}) == len(docs) == metrics["documents"]
    counts = [len(ids) for ids, _ in encode(open_tokenizer(tokenizer), texts)]
    assert metrics["tokens"] == sum(counts)
    assert {doc["source"] for doc in docs} <= {"Set0", "Set1", "Set2"}
    assert sum(doc["tokens"] == 32 for doc in docs) > 0.5 * len(docs)


def test_no_query_comes_from_the_corpus_or_from_another_split(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(300)]
    write_pile(texts)
    metrics, docs, queries, _ = make(tokenizer, chosen())
    of_split = {s: {q["source_document"] for q in queries if q["split"] == s} for s in ("train", "validation", "test")}
    sides = [*of_split.values(), {doc["source_document"] for doc in docs}]
    assert all(sides)
    assert sum(map(len, sides)) == len(set().union(*sides)) == 300
    assert sum(metrics[f"queries_{split}"] for split in of_split) == len(queries)
    whole = dict.fromkeys(texts)
    for query in queries[:50]:
        assert any(query["context"] + query["continuation"] in text for text in whole)
    tokens = encode(open_tokenizer(tokenizer), [q["context"] for q in queries])
    assert np.median([len(ids) for ids, _ in tokens]) == 16


@pytest.mark.parametrize(("name", "workers"), [("pile", 4), ("wikipedia", 2)])
def test_one_process_and_several_write_the_same_bytes(tokenizer: Path, name: str, workers: int) -> None:
    write_pile([text_of(i) for i in range(150)], "00.jsonl.zst")
    write_pile([text_of(i) for i in range(140, 300)], "01.jsonl.zst")
    write_wikipedia([(i, f"Page {i}", f"''{text_of(i)}''") for i in range(1, 200)])
    one = make(tokenizer, chosen(1), name, "one")
    several = make(tokenizer, chosen(workers), name, "several")
    assert one == several
    assert_same_bytes("one", "several")
    assert not list(Path(".longtail/shards").iterdir())


def assert_same_bytes(one: str, other: str) -> None:
    for file in ("docs.parquet", "queries.parquet", "rejects.parquet"):
        assert Path(one, file).read_bytes() == Path(other, file).read_bytes()


def test_the_size_of_batches_and_row_groups_of_duckdb_change_no_byte(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pile([text_of(i) for i in range(150)])
    make(tokenizer, chosen(), out="many")
    monkeypatch.setattr(read, "BATCH_BYTES", 10_000_000)
    make(tokenizer, chosen(), out="one")
    assert_same_bytes("one", "many")


def test_the_order_of_arrival_changes_nothing(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(120)]
    write_pile(texts)
    first = make(tokenizer, chosen())
    write_pile(texts[::-1])
    assert make(tokenizer, chosen(), out="other")[:3] == first[:3]


def test_a_page_begins_with_its_title(tokenizer: Path) -> None:
    wikitext = "'''A''' [[river]]. {{x}}\n" + text_of(1)
    others = [(i, "P", text_of(i)) for i in range(20, 40)]
    write_wikipedia([(12, "Old river", wikitext), (13, "Nothing", "{{only|markup}}"), *others])
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert joined(docs)["12"] == "Old river\n" + wikitext_to_text(wikitext)
    first = next(doc for doc in docs if doc["id"] == "12:0")
    assert (first["title"], first["source"]) == ("Old river", "wikipedia")
    assert [(r["file"], r["row"], r["reason"]) for r in rejects] == [("dump.xml.bz2", 13, "no_text")]
    assert metrics["rejected_no_text"] == 1


def test_duplicates_are_counted_and_kept_once(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(60)]
    write_pile(texts, "00.jsonl.zst")
    write_pile(texts[:25] + texts[:5], "01.jsonl.zst")
    metrics, docs, *_ = make(tokenizer, chosen(share=0.0))
    assert metrics["duplicates"] == 30
    assert len(joined(docs)) == 60
    write_wikipedia([(5, "Same", text_of(1)), (5, "Same", text_of(1)), (6, "Other", text_of(2))])
    assert make(tokenizer, chosen(share=0.0), "wikipedia")[0]["duplicates"] == 1


def test_a_query_that_nearly_stands_in_the_corpus_is_dropped(tokenizer: Path) -> None:
    texts = [text_of(i, 200) for i in range(200)]
    write_pile(texts)
    _, docs, queries, _ = make(tokenizer, chosen(), out="before")
    query = {q["source_document"] for q in queries}
    copies = [text + "tail" for text in texts]  # other documents by their hash, on either side, all nearly the same
    write_pile(texts + copies)
    metrics, docs, queries, _ = make(tokenizer, chosen(), out="after")
    kept = {q["source_document"] for q in queries}
    assert metrics["near_duplicate_sources"] > 50
    shown = [text.strip() for text in joined(docs).values()]
    for one in queries:
        begin = one["context"] + one["continuation"]
        assert not any(text.startswith(begin) for text in shown if one["id"].endswith(":0"))
    assert query - kept


def test_a_cap_keeps_a_sample_that_the_rows_themselves_decide(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(200)])
    _, everything, all_queries, _ = make(tokenizer, chosen(), out="all")
    metrics, some, few, _ = make(tokenizer, chosen(documents=50, max_per_split=7), out="some")
    assert len(some) == metrics["documents"] == 50
    assert {doc["id"] for doc in some} < {doc["id"] for doc in everything}
    assert max(np.unique([q["split"] for q in few], return_counts=True)[1]) == 7
    assert {q["id"] for q in few} < {q["id"] for q in all_queries}
    fewer = make(tokenizer, chosen(documents=20), out="fewer")[1]
    assert {doc["id"] for doc in fewer} < {doc["id"] for doc in some}


def test_documents_too_short_for_their_side_are_rejects_but_not_bad_rows(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(10)] + [f"w{i}" for i in range(30)])
    metrics, _, _, rejects = make(tokenizer, chosen())
    assert {r["reason"].removeprefix("too_short_for_") for r in rejects} == {"corpus", "train", "validation", "test"}
    assert metrics["rejected"] == len(rejects) == 30


def test_too_many_bad_rows_stop_the_stage(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(10)], extra=b"{bad\n")
    *_, rejects = make(tokenizer, chosen(share=0.0))
    assert [(r["file"], r["row"], r["reason"]) for r in rejects] == [("00.jsonl.zst", 11, "bad_json")]
    write_pile([text_of(i) for i in range(10)], extra=b"{bad\n" * 3)
    with pytest.raises(LongtailError, match=r"3 of 13 rows.*max_reject_share"):
        make(tokenizer, chosen(share=0.0), out="never")
    assert not Path("never").exists()


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.write_bytes({"cut": data[: len(data) // 2], "page": b"<!DOCTYPE html><h1>503</h1>", "empty": b""}[how])


@pytest.mark.parametrize("name", ["pile", "wikipedia"])
@pytest.mark.parametrize(("how", "message"), [("cut", "cut in the middle"), ("page", "HTML page"), ("empty", "empty")])
@pytest.mark.parametrize("workers", [1, 2])
def test_damaged_input_is_named_and_leaves_nothing(
    tokenizer: Path, name: str, how: str, message: str, workers: int
) -> None:
    path = write_pile([text_of(1)]) if name == "pile" else write_wikipedia([(1, "A", text_of(1))])
    damage(path, how)
    with pytest.raises(LongtailError, match=rf"{path.name}: .*{message}|{path.name}: {message}"):
        make(tokenizer, chosen(workers), name)
    assert not Path("out").exists()


def test_an_empty_corpus_is_an_error(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(10)])
    with pytest.raises(LongtailError, match="no documents for the corpus: of 10 rows"):
        make(tokenizer, chosen(share=1.0))
    write_wikipedia([])
    with pytest.raises(LongtailError, match="no documents for the corpus: of 0 rows"):
        make(tokenizer, chosen(), "wikipedia")
    Path("raw/wikipedia/dump.xml.bz2").unlink()
    with pytest.raises(LongtailError, match="raw/wikipedia: no files"):
        make(tokenizer, chosen(), "wikipedia")


def test_a_killed_run_goes_on_from_its_finished_shards(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.corpus import batch

    write_pile([text_of(i) for i in range(150)])
    expected = make(tokenizer, chosen(), out="whole")
    done: list[Path] = []
    real = batch.cut_batch

    def failing(settings, one, out: Path) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(one.path)
        real(settings, one, out)

    monkeypatch.setattr(batch, "cut_batch", failing)
    with pytest.raises(KeyboardInterrupt):
        make(tokenizer, chosen())
    again: list[Path] = []

    def noting(settings, one, out: Path) -> None:
        again.append(one.path)
        real(settings, one, out)

    monkeypatch.setattr(batch, "cut_batch", noting)
    assert make(tokenizer, chosen()) == expected
    assert again
    assert not set(again) & set(done)


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), min_size=1, max_size=12, unique=True)
ANY_TEXTS = TEXTS.filter(lambda texts: any(text.strip() for text in texts))


def sides_of(queries: list[dict], docs: list[dict]) -> dict[str, set[str]]:
    sides = {"corpus": {doc["source_document"] for doc in docs}}
    for query in queries:
        sides.setdefault(query["split"], set()).add(query["source_document"])
    return sides


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=ANY_TEXTS, tokens=st.integers(1, 40), least=st.integers(1, 40), short=st.sampled_from(["merge", "drop"]))
def test_any_texts_are_cut_without_loss(tokenizer: Path, texts: list[str], tokens: int, least: int, short: str) -> None:
    write_pile(texts)
    given_ = chosen(share=0.0)
    given_.ingest = params.Ingest(max_reject_share=1.0, memory_gb=1.0)
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


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS, more=st.integers(0, 1000))
def test_any_texts_give_disjoint_sides_and_the_same_bytes_with_four_workers(
    tokenizer: Path, texts: list[str], more: int
) -> None:
    texts += [text_of(i) for i in range(more, more + 100)]
    shutil.rmtree("raw", ignore_errors=True)
    for part in range(3):
        write_pile(texts[part::3], f"{part}.jsonl.zst")
    results = []
    for workers in (1, 4):
        given_ = chosen(workers)
        given_.ingest = params.Ingest(max_reject_share=1.0, memory_gb=1.0)
        results.append(make(tokenizer, given_, out=str(workers)))
    assert results[0] == results[1]
    assert_same_bytes("1", "4")
    sides = sides_of(results[0][2], results[0][1])
    assert sum(map(len, sides.values())) == len(set().union(*sides.values()))


def test_a_capped_corpus_reads_and_cuts_no_more_than_it_needs(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.corpus import batch

    write_pile([text_of(i) for i in range(400)])
    everything = make(tokenizer, chosen(share=0.1), out="all")[1]
    rows: list[int] = []
    real = batch.cut_batch

    def noting(settings, one, out: Path) -> None:
        rows.append(pq.read_metadata(one.path).num_rows)
        real(settings, one, out)

    monkeypatch.setattr(batch, "cut_batch", noting)
    # Three characters a token in truth: the first reach is too far, just right, or needs more rounds.
    results, read = [], []
    for characters in (100.0, 3.0, 0.5):
        monkeypatch.setattr(sample, "CHARACTERS_PER_TOKEN", characters)
        rows.clear()
        out = str(characters)
        results.append(make(tokenizer, chosen(share=0.1, documents=600), out=out))
        read.append(sum(rows))
    assert len(results[0][1]) == 600
    assert results[0] == results[1] == results[2]
    assert_same_bytes("100.0", "3.0")
    assert_same_bytes("100.0", "0.5")
    assert {doc["id"] for doc in results[0][1]} < {doc["id"] for doc in everything}
    assert read[0] == 400
    assert max(read[1:]) < 200
    assert not list(Path(".longtail/shards").iterdir())


def test_subsets_are_drawn_by_weight(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(600)])  # Set0 to Set2, by their length
    weights = {"Set0": 6.0, "Set1": 1.0}
    for _ in range(2):
        metrics, docs, queries, _ = make(tokenizer, chosen(share=0.1, documents=300, weights=weights))
        counts = Counter(doc["source"] for doc in docs)
        assert set(counts) == {"Set0", "Set1"}
        assert counts["Set0"] > 3 * counts["Set1"]
        assert {query["source"] for query in queries} == {"Set0", "Set1"}
        assert metrics["skipped_no_weight"] == pytest.approx(200, abs=40)
        assert len(docs) == 300
    with pytest.raises(LongtailError, match=r"corpus.pile.weights names Set9, which .* there are Set0, Set1, Set2$"):
        make(tokenizer, chosen(documents=300, weights={"Set9": 1.0}))


def test_of_copies_in_two_subsets_the_weightier_one_stays_in_any_round(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(text_of(i), name) for i in range(100) for name in ("Light", "Heavy")]
    lines = [json.dumps({"text": text, "meta": {"pile_set_name": name}}) for text, name in rows]
    write_pile([], extra="\n".join(lines).encode())
    for characters in (0.5, 100.0):
        monkeypatch.setattr(sample, "CHARACTERS_PER_TOKEN", characters)
        settings = chosen(share=0.0, documents=200, weights={"Light": 1.0, "Heavy": 3.0})
        _, docs, *_ = make(tokenizer, settings, out=str(characters))
        assert {doc["source"] for doc in docs} == {"Heavy"}
        assert len({doc["id"] for doc in docs}) == len(docs) == 200
    assert_same_bytes("0.5", "100.0")


def test_the_command_names_the_corpora_it_knows(root: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "pipelines.corpus.chunk", "films"], capture_output=True, text=True, cwd=root, check=False
    )
    assert answer.returncode == 2
    assert "wikipedia" in answer.stderr
    assert "pile" in answer.stderr


def test_the_real_pile_excerpt(real: Path, tokenizer: Path) -> None:
    Path("raw/pile").mkdir(parents=True)
    lines = list(open_lines(real / "pile/pile_sample.jsonl.zst"))[::8]
    Path("raw/pile/a.jsonl").write_bytes(b"\n".join(lines))
    settings = chosen(share=0.2)
    settings.chunk = params.Chunk(tokens=128, min_tokens=16, short="merge")
    metrics, docs, queries, rejects = make(tokenizer, settings)
    assert metrics["rows"] == 69
    sources = {q["source_document"] for q in queries} | {d["source_document"] for d in docs}
    assert len(sources) + len(rejects) + metrics["near_duplicate_sources"] == 69
    assert len({row["source"] for row in docs + queries}) == 10
