"""Right or wrong: the published substring rule with its flaw, whole words, exact match as in SQuAD,
and namesakes.

Whole words and normalised answers are those of each language, with and without spaces.
"""

import string

from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.language import language, refusals, words
from pipelines.questions import matching


def test_substring_knows_three_forms():
    for prediction, answer, right in [
        ("a Politician", "politician", True),  # capitalised
        ("a politician", "Politician", True),  # lower-cased
        ("A POLITICIAN", "politician", False),  # no other case
        ("United states", "United States", True),  # capitalise() lowers the rest
        (" New York", "W", True),  # a short alias is a substring of anything
        ("anything", "", False),  # an empty alias is no answer
    ]:
        assert matching.substring(prediction, [answer]) is right, (prediction, answer)


def test_whole_words():
    for code, text, answer, right in [
        ("en", " New York", "W", False),
        ("en", " George W. Bush", "W", True),
        ("en", "He was a POLITICIAN.", "politician", True),
        ("en", "politicians", "politician", False),
        ("en", "plays C++ well", "C++", True),
        ("en", "Zu\u0308rich", "Z\u00fcrich", True),  # composed and decomposed
        ("en", "stra\u00dfe", "STRASSE", True),
        ("en", "axb", "a.b", False),
        ("zh", "答案是北京。", "北京", True),
        ("zh", "東京都", "京東", False),
        ("zh", "生于１９８０年", "1980", True),
        ("zh", "公司WTO在中国", "W", False),
        ("ja", "ベルリンです", "ベルリン", True),
        ("ja", "ﾍﾞﾙﾘﾝ", "ベルリン", True),
        ("ru", "Это Фёдор Достоевский.", "Федор Достоевский", True),
        ("ru", "Москва\u0301 — столица", "Москва", True),
        ("de", "in der GROSSEN STRASSE", "große", False),
        ("de", "die Große Straße", "GROSSE STRASSE", True),
        ("fr", "né à L\u2019Île-d\u2019Yeu", "Île", True),
        ("en", "हिन्दी", "हिन्द", False),  # a vowel sign belongs to its word
        ("en", "मिल", "मूल", False),
        ("en", "Conan O\u2019Brien", "O'Brien", True),
        ("en", "by O\u2019Brien", "Brien", True),
        ("en", "Los\u00a0Angeles", "Los Angeles", True),
        ("en", "1914-1918", "1914\u20131918", True),
        ("fr", "Grande\u202fBretagne", "Grande Bretagne", True),
        ("en", "der Bundes\u00adtag", "Bundestag", True),
        ("en", "Zürich", "Zurich", False),
        ("en", "\u0130stanbul", "Istanbul", True),
        ("en", "מֹשֶׁה רבנו", "משה", True),
        ("ru", "Пётр \u0412\u0435\u0300лик", "Петр Велик", True),
        ("en", "หมายถึงเมืองไทย", "ไทย", True),
    ]:
        assert matching.word(text, [answer], language.read_language(code)) is right
        if code == "en":
            assert matching.word(text, [answer]) is right


def test_a_namesake_is_another_page_by_the_same_name():
    for title, subject, page, namesake in [
        ("Titanic (1997 film)", "Titanic", "Titanic", True),
        ("Titanic", "Titanic", "Titanic", False),
        ("Springfield, Ohio", "Springfield", "Springfield, Illinois", True),
        ("Atlantic", "Titanic", "Titanic", False),
        ("titanic (Film)", "Ship", "Titanic", True),
    ]:
        assert matching.namesake(title, subject, page) is namesake, (title, page)


PIECES = ["a", "an", "the", "A", "The", "U.S.", "L'\u00c9tranger", "e\u0301", "caf\u00e9"]
PIECES += ["\u201cA\u201d", "\u2014", "-", "B-52", "_", "42", "\u6771"]


def squad(text: str) -> str:
    """By its definition: lower case, then punctuation goes, then articles that are whole words,
    then spaces.
    """
    kept, word = [], ""
    for c in [*(c for c in text.lower() if c not in string.punctuation), " "]:
        if c.isalnum():
            word += c
        else:
            kept += [
                "" if word in ("a", "an", "the") else word,
                " " if word in ("a", "an", "the") else "",
                c,
            ]
            word = ""
    return " ".join("".join(kept).split())


def test_tricky_texts_have_squads_normal_form():
    for text, normal in [
        ("The  Beatles, a band!", "beatles band"),
        ("B-52s, the band", "b52s band"),
        ("Theatre an anthem", "theatre anthem"),
        ("na\u00efve  caf\u00e9\t\u6771\u4eac", "na\u00efve caf\u00e9 \u6771\u4eac"),
        # typographic quotes are no punctuation, and part words
        ("\u201cThe Who\u201d", "\u201c who\u201d"),
        ("the\u2014end", "\u2014end"),
        ("an_other", "another"),
        ("\u0130stanbul", "i\u0307stanbul"),
    ]:
        assert matching.normalise(text) == squad(text) == normal


@given(st.one_of(st.text(), st.lists(st.sampled_from([*PIECES, " ", ",", "."])).map("".join)))
@example("a\u0301 la carte")
def test_any_text_has_squads_normal_form_if_that_is_not_empty(text):
    assert matching.normalise(text) == (squad(text) or text.lower().strip())


def test_normalised_answers():
    for code, text, same in [
        ("de", "Das „Rote Kreuz“!", "rote kreuz"),
        ("fr", "L\u2019Équipe", "équipe"),
        ("es", "¿El Cairo?", "cairo"),
        ("ru", "«Ёлка».", "елка"),
        ("zh", "《红楼梦》。", "红楼梦"),
        ("ja", "「東京」", "東京"),
        ("de", "Die", "die"),  # nothing else would be left
    ]:
        assert matching.normalise(text, language.read_language(code)) == same


def test_exact_match_ignores_all_but_words():
    assert matching.exact("the Who.", ["Who"])
    assert not matching.exact("Who are they", ["Who"])
    assert matching.exact("", ["The The"]), "nothing is left of either, as in SQuAD's script"
    assert matching.normalise("The The") == "the the", "a vote still tells it from an empty answer"


def test_f1_counts_words_or_characters():
    """Characters are the words of scripts without spaces."""
    for code, predicted, gold, f1 in [
        ("de", "die Rote Armee", "Rote Kreuz", 0.5),
        ("zh", "北京市", "北京", 0.8),
        ("ja", "ベルリン市", "ベルリン", 2 / 3),
    ]:
        spoken = language.read_language(code)
        assert matching.token_f1(predicted, ["x", gold], spoken) == f1


def test_f1_is_no_less_than_exact_match_where_nothing_is_left_of_a_text():
    """As in SQuAD 2.0: 1 if nothing is left of both, 0 if of one."""
    for predicted, gold, f1 in [("A", "A", 1), ("The", "!", 1), ("A", "B", 0), ("B", "A", 0)]:
        assert matching.token_f1(predicted, [gold]) == matching.exact(predicted, [gold]) == f1


def test_an_answer_that_refuses_abstains():
    for said, abstains in [
        ("I don\u2019t know.", True),
        ("The passage does not mention her mother", True),
        ("Unknown!", True),
        ("the Unknown Soldier", False),
        ("", False),
        ("No idea.", True),
        ("I'm not sure", True),
        ("N/A", True),
        ("The author is unknown.", True),
        ("Nonesuch Records", False),
        ("Das weiß ich nicht.", True),
        ("Keine Ahnung!", True),
        ("Weißensee", False),
        ("我不知道。", True),
    ]:
        assert refusals.abstains(said) is abstains, said


def test_every_language_writes_its_refusals_as_they_are_compared():
    assert refusals.BY_LANGUAGE.keys() == set(language.codes())
    for code, texts in refusals.BY_LANGUAGE.items():
        assert texts.within, code
        assert texts.alone, code
        for text in [*texts.within, *texts.alone]:
            assert words.fold(text, refusals.MATCH) == text
        for text in texts.alone:
            assert words.without_punctuation(text) == text


def test_a_text_is_split_at_the_longest_names():
    names = ["York", "New York", "New York City"]
    parts = ["In ", "new york", ", ", "NEW YORK CITY", "; ", "York", ""]
    assert words.split("In new york, NEW YORK CITY; York", names) == parts
    assert words.split("東京都の東京", ["東京"]) == ["", "東京", "都の", "東京", ""]
    assert words.split("Yorkshire İ York", ["york"]) == ["Yorkshire İ ", "York", ""]
    assert words.split("none", ["", "x"]) == ["none"]
