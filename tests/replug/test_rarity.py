"""A token's rarity is how often the corpus has its word, as reading text and corpus character by character finds it."""

import unicodedata
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.replug import rarity


@pytest.fixture(scope="module")
def db():
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        yield connection


WORDS = ["Velm", "velm", "the", "東京", "(Oslo)", "well-known", "--", "é.", "“a”", "2,5", "e\u0301t", "नमस्ते"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


def is_word(character):
    return unicodedata.category(character)[0] in "LNM"


def words_of(text):
    return "".join(character if is_word(character) else " " for character in text).split()


def by_hand(context, continuation, n_bytes, counts):
    """Frequency of each token's word, None where it has none: character by character."""
    whole, at = context + continuation, len(context.encode())
    starts = [0]
    for character in whole:
        starts.append(starts[-1] + len(character.encode()))
    found = []
    for size in n_bytes:
        letters = [i for i in range(len(whole)) if at <= starts[i] < at + size and is_word(whole[i])]
        at += size
        if not letters:
            found.append(None)
            continue
        first = last = letters[0]
        while first and is_word(whole[first - 1]):
            first -= 1
        while last < len(whole) and is_word(whole[last]):
            last += 1
        found.append(counts[whole[first:last].lower()] if last < len(whole) else None)
    return found


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_tokens_frequency_is_its_words_in_the_corpus(data, tmp_path_factory, db):
    docs = [data.draw(TEXTS).replace(" ", " \n") for _ in range(3)]
    counts = Counter(word.lower() for text in docs for word in words_of(text))
    contexts, continuations, sizes = [], [], []
    for _ in range(data.draw(st.integers(1, 3))):
        contexts.append(data.draw(TEXTS))
        continuations.append(data.draw(st.sampled_from(["", " ", "\n", "x "])) + data.draw(TEXTS))
        characters, own = [len(c.encode()) for c in continuations[-1]], []
        while characters:
            n = data.draw(st.integers(1, 4))
            own.append(sum(characters[:n]))
            characters = characters[n:]
            own += [0] * data.draw(st.integers(0, 1))
        sizes.append(own)
    path = tmp_path_factory.mktemp("docs") / "docs.parquet"
    pq.write_table(pa.table({"text": docs}), path)
    flat = np.array([size for own in sizes for size in own], np.int64)
    words, own = rarity.words(contexts, continuations, flat, np.array([len(own) for own in sizes], np.int64))
    whole = [context + continuation for context, continuation in zip(contexts, continuations, strict=True)]
    assert words.to_pylist() == [word for text in whole for word in words_of(text)]
    counted = rarity.frequencies(db, rarity.of_documents(path), words)
    found = [None if i < 0 else int(counted[i]) for i in own]
    assert found == [one for text in zip(contexts, continuations, sizes, strict=True) for one in by_hand(*text, counts)]
