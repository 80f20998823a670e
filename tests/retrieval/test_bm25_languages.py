"""BM25 in other languages: their stop words and stems, pairs of characters without spaces, and an index that knows."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vectors

from pipelines import language
from pipelines.retrieval import bm25_build
from pipelines.retrieval.bm25 import BM25, Analyser


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        ("de", "Die Hauptstädte der Länder", ["hauptstadt", "land"]),
        ("fr", "les capitales des pays", ["capital", "pay"]),
        ("es", "las capitales de los países", ["capital", "pais"]),
        ("ru", "столицы и столица", ["столиц", "столиц"]),
        ("zh", "北京是中国的首都", ["北京", "京是", "是中", "中国", "国的", "的首", "首都"]),
        ("zh", "在 W公司2021年 的", ["w", "公司", "2021", "年"]),
        ("ja", "東京タワーは高い", ["東京", "京タ", "タワ", "ワー", "ーは", "は高", "高い"]),
        ("en", "東京タワー", ["東京タワー"]),  # a run is one word
    ],
)
def test_terms(code, text, found):
    assert next(Analyser(language.read(code)).terms([text])) == found


@pytest.mark.parametrize(
    ("code", "texts", "query", "best"),
    [
        ("de", ["Der Fluss in Velm", "Die Städte und Flüsse Norlands", "Tosh"], "Welche Stadt?", 1),
        ("zh", ["北京是中国的首都。", "上海是城市。", "Velm"], "中国首都", 0),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_an_index_is_searched_in_its_own_language(tmp_path, code, texts, query, best):
    ids, docs, out = [f"d{i}" for i in range(len(texts))], tmp_path / "docs.parquet", tmp_path / "out"
    pq.write_table(pa.table({"id": ids, "title": [""] * len(texts), "text": texts, "source_document": ids}), docs)
    bm25_build.build(docs, out, vectors.settings(), vectors.compute(), "index", language.read(code))
    positions, scores = BM25.load(out, docs).search([query], 3)
    assert positions[0][0] == best
    assert scores[0][0] > scores[0][1]
    assert json.loads((out / "meta.json").read_text())["analyser"] == Analyser(language.read(code)).name
