"""BM25 scores as the formula says, with one analyser for documents and queries, however the
index was built.
"""

import math
import os
import re
import resource
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vectors

from pipelines.errors import LongtailError
from pipelines.language import language, words
from pipelines.questions import matching
from pipelines.retrieval import analyser, bm25, bm25_build
from pipelines.retrieval.analyser import Analyser

TEXTS = [
    "The cities of Norland: Velm, Tosh and Ödegard.",
    "A city runs; cities are running.",
    "The author walked to the city of Velm, and wrote of Velm.",
    "The author walked to the city of Velm, and wrote of Velm.",
    "of the and",
    "東京 is a city",
]
VOCABULARY = "vocab.index.json"
SOURCES = ["a", "a", "b", "c", "d", "d"]
pytestmark = pytest.mark.usefixtures("workplace")


def write(folder, texts, sources=None, titles=None):
    columns = {
        "id": [f"d:{i}" for i in range(len(texts))],
        "title": titles or [""] * len(texts),
        "text": texts,
    }
    columns["source_document"] = sources or columns["id"]
    pq.write_table(pa.table(columns), folder / "docs.parquet", row_group_size=16)
    return folder / "docs.parquet"


def build(docs, out):
    return bm25_build.build(docs, out, vectors.MEMORY_GB, vectors.compute(), "index@test-bm25")


@pytest.fixture
def searching(tmp_path):
    """A function that indexes texts and opens the index."""

    def made(texts=TEXTS, sources=None, titles=None):
        docs = write(tmp_path, texts, sources, titles)
        build(docs, tmp_path / "out")
        return bm25.BM25(tmp_path / "out", docs)

    return made


def formula(query, texts=TEXTS, k1=1.5, b=0.75):
    """Lucene's BM25 of every text, as the textbook writes it."""
    documents = [Counter(words) for words in Analyser().terms(texts)]
    mean = sum(map(Counter.total, documents)) / len(documents)
    scores = np.zeros(len(documents))
    for term, times in Counter(next(Analyser().terms([query]))).items():
        holding = sum(term in document for document in documents)
        idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for i, document in enumerate(documents):
            tf = document[term]
            scores[i] += times * idf * tf / (tf + k1 * (1 - b + b * document.total() / mean))
    return scores


@pytest.mark.parametrize("settings", [{}, {"k1": 0.9, "b": 0.4}])
def test_scores_are_the_formulas_and_ties_go_by_position(searching, settings, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setattr(bm25_build, name.upper(), value)
    queries = ["Velm city", "velm VELM author", "東京", "O\u0308degard running", "zzz", ""]
    for query, positions, scores in zip(queries, *searching().search(queries, 6), strict=True):
        expected = formula(query, **settings)
        order = np.lexsort((np.arange(6), -expected.astype(np.float32)))
        np.testing.assert_array_equal(positions, order)
        np.testing.assert_allclose(scores, expected[order], atol=1e-5)
        assert (positions.dtype, scores.dtype) == (np.int64, np.float32)


@pytest.fixture(scope="module")
def zipf(tmp_path_factory):
    """300 documents of words of a Zipf distribution, indexed in segments of 64, merged 500
    postings at a time.
    """
    folder = tmp_path_factory.mktemp("zipf")
    words = np.random.default_rng(0).zipf(1.3, (300, 30)) % 500
    texts = [" ".join(f"w{word}" for word in row) for row in words]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        in_pieces(patch)
        docs = write(folder, texts, [f"s{i // 3:03d}" for i in range(300)])
        build(docs, folder / "out")
    return docs, texts


def in_pieces(monkeypatch, segment=64, postings=500):
    monkeypatch.setattr(bm25_build, "SEGMENT_DOCUMENTS", segment)
    monkeypatch.setattr(bm25_build, "MERGED_POSTINGS", postings)


def find(zipf, *asked, **kwargs):
    return bm25.BM25(zipf[0].parent / "out", zipf[0]).search(*asked, **kwargs)


def test_any_k_equals_the_formula_over_all_segments_and_batches(zipf, monkeypatch):
    """The last query's 18,000 terms are added in float32."""
    monkeypatch.setattr(analyser, "TEXTS_AT_ONCE", 3)
    queries = [zipf[1][7], "w1 w2 w3", "w77", " ".join(zipf[1] * 2)]
    expected = [formula(query, zipf[1]) for query in queries]
    for k in (1, 40, 300, 1000):
        positions, scores = find(zipf, queries, k)
        assert positions.shape == scores.shape == (4, min(k, 300))
        for of_query, places, best, rtol in zip(
            expected, positions, scores, [1e-5] * 3 + [1e-4], strict=True
        ):
            np.testing.assert_allclose(best, np.sort(of_query)[::-1][:k], rtol=rtol)
            np.testing.assert_allclose(best, of_query[places], rtol=rtol)
            assert len(set(places.tolist())) == len(places)
            assert (np.diff(places)[np.diff(best) == 0] > 0).all()


def test_documents_and_queries_go_through_the_same_analyser(searching):
    positions, scores = searching().search(
        ["Running of the City", "CITIES run", "O\u0308DEGARD"], 1
    )
    # stemmed, lower-cased, composed, without stop words on both sides
    assert positions.tolist() == [[1], [1], [0]]
    assert (scores > 0).all()
    stems = [*Analyser().terms(["The willing rivers WERE running", "It is in"])]
    assert stems == [["will", "river", "were", "run"], []], "of the words that are no stop words"


def test_words_have_letters_digits_and_marks():
    # without scripts that have no spaces
    numbers = (*range(0xE00), *range(0x2000, 0x2070))
    characters = [chr(i) for i in numbers if unicodedata.category(chr(i)) not in ("Cn", "Cs")]
    texts = [
        "",
        " It's 3.5\nsnake_case\x00 ",
        "\ud800 an argument \udcff",
        "Ω\u0301Σ हिन्दी oʼzbek \u0301",
        " ".join(f"a{character}" for character in characters),
    ]
    for batch in (texts, texts[:2]):  # the second is all ASCII
        for text, cut in zip(batch, Analyser().words(batch).to_pylist(), strict=True):
            typed = text.replace("\u00b4", "'")
            lower = unicodedata.normalize("NFKC", typed).lower()
            assert list(map(seen, filter(None, cut))) == list(map(seen, words_of(lower)))


def seen(word):
    return words.SILENT.sub("", word)


def words_of(text):
    """The words by their definition, character by character."""
    kept = ""
    for character in text:
        category = unicodedata.category(character)[0]
        is_part = category in "LMN" or re.match(f"[_{words.INVISIBLE}]", character)
        kept += character if is_part and character not in "\u02bb\u02bc" else " "
    return kept.split()


def test_the_documents_of_a_querys_own_source_are_left_out(searching, zipf):
    positions, scores = searching(sources=SOURCES).search(
        ["Velm city"] * 4, 6, ["b", None, "", "nowhere"]
    )
    assert 2 not in positions[0]
    assert (positions[0, -1], scores[0, -1]) == (-1, -np.inf)
    kept = positions[1] != 2
    assert positions[0, :5].tolist() == positions[1][kept].tolist()
    assert scores[0, :5].tolist() == scores[1][kept].tolist()
    assert positions[1].tolist() == positions[2].tolist() == positions[3].tolist()
    for row in find(zipf, [zipf[1][63], zipf[1][64]], 300, without=["s021", "s021"])[0]:
        assert sorted(row[:297]) == [i for i in range(300) if i not in (63, 64, 65)]
        assert row[297:].tolist() == [-1] * 3
    positions, scores = searching(["Velm", "Velm"], ["a", "a"]).search(["Velm"], 2, ["a"])
    assert positions.tolist() == [[-1, -1]]
    assert np.isneginf(scores).all()


def test_documents_without_any_term_and_no_documents(searching):
    positions, scores = searching(["of the", "", "!"]).search(["of", "word"], 5)
    assert positions.tolist() == [[0, 1, 2]] * 2
    assert not scores.any()
    with pytest.raises(LongtailError, match="no documents"):
        searching([])


def test_titles_are_indexed_before_the_texts(searching):
    titles = ["Hegg", None, "", "Velm", "Hegg (film)", ""]
    positions, scores = (
        row[0] for row in searching(titles=titles).search(["Hegg Velm"], len(TEXTS))
    )
    read = [f"{title or ''} {text}" for title, text in zip(titles, TEXTS, strict=True)]
    np.testing.assert_allclose(scores, formula("Hegg Velm", read)[positions], rtol=1e-5)
    assert set(positions[scores > 0].tolist()) == {0, 2, 3, 4}


def test_bm25s_opens_the_index_and_finds_the_same(zipf):
    ours = bm25s.BM25.load(zipf[0].parent / "out", mmap=True)
    theirs = bm25s.BM25(method="lucene")
    analyser = Analyser()
    theirs.index([*analyser.terms(zipf[1])], show_progress=False)
    assert set(ours.vocab_dict) == set(theirs.vocab_dict)
    assert list(ours.vocab_dict.values()) == list(range(len(ours.vocab_dict)))
    assert ours.scores["indptr"].dtype == np.int64  # more than 2^31 postings
    queries = [zipf[1][7], "w77 w3", ""]
    terms, scores = [*analyser.terms(queries)], find(zipf, queries, 5)[1]
    np.testing.assert_array_equal(ours.retrieve(terms, k=5, show_progress=False)[1], scores)
    np.testing.assert_allclose(
        theirs.retrieve(terms, k=5, show_progress=False)[1], scores, rtol=1e-6
    )


def test_segments_of_any_size_make_the_same_bytes(zipf, tmp_path, monkeypatch):
    """They hold a bounded number of postings."""
    real, held = bm25_build._merge, []

    def counting(*args):
        real(*args)
        frequencies = np.load(args[-1] / "frequencies.npy")
        held.append((frequencies.sum(), frequencies.max()))

    monkeypatch.setattr(bm25_build, "_merge", counting)
    build(zipf[0], tmp_path / "whole")
    assert same(zipf[0].parent / "out", tmp_path / "whole")
    held.clear()
    in_pieces(monkeypatch)
    postings = build(zipf[0], tmp_path / "again")["postings"]
    assert sum(total for total, _ in held) == postings
    assert len(held) >= postings / 1000
    assert all(total <= 1000 + most for total, most in held)


def test_more_segments_and_merges_than_files_may_be_open(zipf, tmp_path, monkeypatch):
    docs = write(tmp_path, zipf[1][:50])
    build(docs, tmp_path / "whole")
    in_pieces(monkeypatch, 2, 50)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = sorted(set(range(1000)) - set(map(int, os.listdir("/proc/self/fd"))))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[15], hard))
    try:
        build(docs, tmp_path / "again")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert same(tmp_path / "whole", tmp_path / "again")


def test_another_hash_seed_makes_the_same_bytes(zipf, tmp_path, root):
    script = (
        "import sys; from pathlib import Path; import vectors; from pipelines.retrieval import bm25_build\n"
        "bm25_build.build(Path(sys.argv[1]), Path('again'), vectors.MEMORY_GB, vectors.compute(), 'x')\n"
    )
    env = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": f"{root}{os.pathsep}{Path(__file__).parent}",
    }
    subprocess.run([sys.executable, "-c", script, str(zipf[0])], check=True, cwd=tmp_path, env=env)
    assert same(zipf[0].parent / "out", tmp_path / "again")


def same(folder, other):
    names = sorted(file.name for file in folder.iterdir())
    assert names == sorted(file.name for file in other.iterdir())
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in names)


def renamed(file, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder, patch: write(folder, TEXTS[:-1]), "another docs"),
        (lambda folder, patch: (folder / "out" / VOCABULARY).write_bytes(b""), "not a whole"),
        (lambda folder, patch: (folder / "out" / VOCABULARY).unlink(), "not a whole"),
        (lambda folder, patch: patch.setattr(bm25, "DOCUMENT", "{text}"), "another document "),
        (
            lambda folder, patch: renamed(folder / "out/meta.json", "Snowball", "Other"),
            r"another analyser .*; `longtail run` makes it anew",
        ),
    ],
)
def test_an_index_of_something_else_or_a_broken_one_is_refused(
    searching, tmp_path, monkeypatch, harm, message
):
    searching()
    harm(tmp_path, monkeypatch)
    with pytest.raises(LongtailError, match=message):
        bm25.BM25(tmp_path / "out", tmp_path / "docs.parquet")


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        ("de", "Die Hauptstädte der Länder", ["hauptstadt", "land"]),
        ("fr", "les capitales des pays", ["capital", "pay"]),
        ("es", "las capitales de los países", ["capital", "pais"]),
        ("ru", "столицы и столица", ["столиц", "столиц"]),
        ("zh", "在 W公司2021年 的", ["w", "公司", "2021", "年"]),
        ("ja", "東京タワーは高い", ["東京", "京タ", "タワ", "ワー", "ーは", "は高", "高い"]),
        ("en", "東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("en", "葛\U000e0100城市", ["葛城", "城市"]),
        ("en", "Dylan\u00b4s", ["dylan", "s"]),
        ("en", "Ｗｉｄｅ 😀\u200d👩 ❤\ufe0f", ["wide"]),
        ("en", "เมืองไทย", ["เม", "มื", "ือ", "อง", "งไ", "ไท", "ทย"]),
        ("en", "don't O\u2019Brien snake_case", ["don", "t", "o", "brien", "snake_cas"]),
    ],
)
def test_terms_in_other_languages(code, text, found):
    assert next(Analyser(language.read_language(code)).terms([text])) == found


@pytest.mark.parametrize(
    ("code", "text", "same"),
    [
        ("ru", "Оле\u0301г Горбачёв", "Олег Горбачев"),
        ("ru", "По\u0301льский музе\u0300й", "польский музей"),
        ("ru", "бо\u0301льшая", "большая"),
        ("en", "Ки\u0301їв і Львів", "Київ і Львів"),
        ("en", "हिन्दी क्षेत्र \u0958\u093f\u0932\u093e", "हिन्दी क्\u200dषेत्र \u0915\u093f\u0932\u093e"),
        ("en", "مُحَمَّد الطـــويل", "محمد الطويل"),
        ("en", "می\u200cخواهم", "میخواهم"),
        ("en", "שָׁלוֹם תל־אביב", "שלום תל-אביב"),
        ("en", "Vie\u0323\u0302t", "Việt"),
        ("en", "ΜΆΪΟΣ", "μάϊος"),
        ("en", "Straße STRAẞE", "strasse strasse"),
        ("en", "\u0130stanbul", "Istanbul"),
        ("en", "Bundes\u00adtag", "Bundestag"),
        ("en", "O\u02bcZbek O\u2019zbek", "o'zbek o'zbek"),
        ("en", "ﬁne", "fine"),
    ],
)
def test_spellings_that_answers_match_by_are_the_same_terms(code, text, same):
    spoken = language.read_language(code)
    written, typed = Analyser(spoken).terms([text, same])
    assert written == typed
    assert all(matching.word(text, [name], spoken) for name in same.split())


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("मिल", "मूल"),  # vowel signs
        ("Zürich", "Zurich"),
        ("Рай", "Раи"),
        ("का", "क"),
        ("কা", "কি"),
    ],
)
def test_other_words_are_other_terms(text, other):
    written, typed = Analyser().terms([text, other])
    assert written != typed
    assert not matching.word(text, [other])


def test_an_index_is_searched_in_its_own_language(tmp_path):
    docs = write(tmp_path, ["Der Fluss in Velm", "Die Städte und Flüsse Norlands", "Tosh"])
    out = tmp_path / "out"
    bm25_build.build(
        docs, out, vectors.MEMORY_GB, vectors.compute(), "index", language.read_language("de")
    )
    positions, scores = bm25.BM25(out, docs).search(["Welche Stadt?"], 3)
    assert positions[0][0] == 1
    assert scores[0][0] > scores[0][1]
