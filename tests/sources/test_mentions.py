"""Names in texts: they count where they stand exactly as written, as whole words."""

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources import mentions


def test_names_count_as_whole_words_exactly_as_written():
    for names, texts, counts in [
        (["Obama", "Barack Obama", "Obama Day"], ["Barack Obama, Obama", "Obama Day"], [3, 1, 1]),
        (["York", "york"], ["New York, York; new york. NewYork Yorkshire", "York's"], [3, 1]),
        (["'71", "C++", "Motör"], ["'71, not a71 or '712; AC++ and C++s, Motör Motörs"], [1, 1, 1]),
        (["李白", "白", "ドイツ", "ドイ"], ["李白 李白詩 白李, 東ドイツとドイツ語 ドイツェ"], [2, 3, 2, 0]),
        (["Ada", "Ada Ada"], ["Ada", "Ada", "is Ada"], [3, 0]),  # none spans two texts
        # control characters end a word
        (["Ada", "a da"], ["Ada\x1fAda\0Ada\nAda a\x1fda \x1fa da\x1f"], [4, 2]),
        ([], ["Ada"], []),
        (["Ada"], [], [0]),
    ]:  # fmt: skip
        assert mentions.frequencies(names, texts).tolist() == counts


def by_hand(names: list[str], text: str) -> list[tuple[int, int, int]]:
    """(place, number of characters, number of the name) of each occurrence, name by name."""
    found = []
    for number, name in enumerate(names):
        left = r"(?<![^\W_])" if name[0].isalnum() else ""
        right = r"(?![^\W_])" if name[-1].isalnum() else ""
        places = re.finditer(f"{left}(?={re.escape(name)}{right})", text)
        found += [(place.start(), place.start() + len(name), number) for place in places]
    return sorted(found)


@given(
    st.lists(st.text("ab -𝒳é", min_size=1, max_size=5), max_size=8, unique=True),
    st.lists(st.text("ab -𝒳é\n"), max_size=5),
)
def test_counts_are_those_of_a_search_name_by_name(names, texts):
    """Overlapping occurrences, bounded where two word characters would meet, in any batches."""
    counts = Counter(number for text in texts for *_, number in by_hand(names, text))
    assert mentions.frequencies(names, texts).tolist() == [counts[n] for n in range(len(names))]
