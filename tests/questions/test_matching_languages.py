"""Whole words and normalised answers in other languages than English, with and without spaces."""

import pytest

from pipelines import language, words
from pipelines.questions import matching


@pytest.mark.parametrize(
    ("code", "text", "answer", "right"),
    [
        ("zh", "答案是北京。", "北京", True),
        ("zh", "答案是北京市", "北京", True),
        ("zh", "東京都", "京東", False),
        ("zh", "生于１９８０年", "1980", True),
        ("zh", "公司W在中国", "W", True),
        ("zh", "公司WTO在中国", "W", False),
        ("ja", "ベルリンです", "ベルリン", True),
        ("ja", "西ベルリン", "ベルリン", True),
        ("ja", "ベルリナー", "ベルリ", False),
        ("ja", "ﾍﾞﾙﾘﾝ", "ベルリン", True),
        ("ja", "おおきい東京", "東京", True),
        ("ru", "Это Фёдор Достоевский.", "Федор Достоевский", True),
        ("ru", "Москва\u0301 — столица", "Москва", True),
        ("ru", "Московский", "Москов", False),
        ("de", "in der GROSSEN STRASSE", "große", False),
        ("de", "die Große Straße", "GROSSE STRASSE", True),
        ("fr", "né à L\u2019Île-d\u2019Yeu", "Île", True),
        ("es", "Él es español", "español", True),
        ("es", "españoles", "español", False),
        ("en", "हिन्दी", "हिन्द", False),  # a vowel sign belongs to its word
        ("en", "หมายถึงเมืองไทย", "ไทย", True),
    ],
)
def test_whole_words(code, text, answer, right):
    assert matching.word(text, [answer], language.read(code)) is right


@pytest.mark.parametrize(
    ("code", "text", "same"),
    [
        ("de", "Das „Rote Kreuz“!", "rote kreuz"),
        ("fr", "L\u2019Équipe", "équipe"),
        ("fr", "l'aujourd'hui", "aujourdhui"),
        ("es", "¿El Cairo?", "cairo"),
        ("ru", "«Ёлка».", "елка"),
        ("zh", "《红楼梦》。", "红楼梦"),
        ("ja", "「東京」", "東京"),
        ("en", "The “Who”", "“who”"),  # SQuAD's rule knows ASCII alone
        ("de", "Die", "die"),  # nothing else would be left
    ],
)
def test_normalised_answers(code, text, same):
    assert matching.normalise(text, language.read(code)) == same


def test_a_text_is_split_at_the_longest_names_whatever_their_case():
    assert words.split("In new york, NEW YORK CITY; York", ["York", "New York", "New York City"]) == [
        "In ",
        "new york",
        ", ",
        "NEW YORK CITY",
        "; ",
        "York",
        "",
    ]
    assert words.split("東京都の東京", ["東京"]) == ["", "東京", "都の", "東京", ""]
    assert words.split("Yorkshire İ York", ["york"]) == ["Yorkshire İ ", "York", ""]
    assert words.split("none", ["", "x"]) == ["none"]
