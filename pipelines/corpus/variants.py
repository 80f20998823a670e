"""Choose among a page's variants of a word: -{zh-hans:计算机; zh-hant:電腦}- is 计算机 to a reader.

MediaWiki's language converter has these marks where a language is written in several ways, as
Chinese is. https://www.mediawiki.org/wiki/Writing_systems/Syntax describes them.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

NESTING = 4  # marks inside each other
# A mark with no other in it. Templates may be in it.
MARK = re.compile(r"-\{(?!\{[^{])((?:[^{}]++|\{\{[^{}]*+\}\})*+)\}-")
HIDDEN = frozenset("THN-")  # flags: for the page's title, for later words, name of the variant


class _Patterns(NamedTuple):
    flags: re.Pattern[str]
    rule: re.Pattern[str]
    next_rule: re.Pattern[str]


def without_variants(wikitext: str, variants: Sequence[str]) -> str:
    """The page with one variant for each mark: of `variants` the first that the mark has.

    A mark without variants is its text. Marks that a reader does not see are dropped.
    """
    if not variants:
        return wikitext
    for _ in range(NESTING):
        if "-{" not in wikitext:
            break
        wikitext = MARK.sub(lambda mark: _chosen(mark[1], tuple(variants)), wikitext)
    return wikitext


def _chosen(inside: str, variants: tuple[str, ...]) -> str:
    """What a reader of the first of the variants sees of a mark."""
    patterns = _patterns(variants)
    flags = patterns.flags.match(inside)
    if flags:
        inside = inside[flags.end() :]
        if HIDDEN & set(flags[1].upper()) and not flags[1].lower().startswith("zh"):
            return ""

    texts: dict[str, str] = {}
    for rule in patterns.next_rule.split(inside):
        match = patterns.rule.match(rule)
        if match:
            texts.setdefault(match[1].lower(), rule[match.end() :].strip())
    for variant in variants:
        if variant in texts:
            return texts[variant]
    return inside


@lru_cache(maxsize=4)
def _patterns(variants: tuple[str, ...]) -> _Patterns:
    """The patterns of a mark's parts: its flags, and its rules as "zh-hans:…" or "…=>zh-hans:…"."""
    code = "|".join(map(re.escape, sorted(variants, key=len, reverse=True)))
    rule = rf"\s*(?:[^;]*?=>\s*)?(?:{code})\s*:"
    flags = rf"\s*((?:[a-zA-Z-]|{code})?(?:\s*;\s*(?:[a-zA-Z-]|{code}))*)\s*\|"
    rule_of_code = rule.replace(f"(?:{code})", f"({code})")
    next_rule = rf"(?<!&nbsp);(?=\s*$|{rule})"
    return _Patterns(
        flags=re.compile(flags, re.IGNORECASE),
        rule=re.compile(rule_of_code, re.IGNORECASE),
        next_rule=re.compile(next_rule, re.IGNORECASE),
    )
