"""Wikitext to plain text: prose, section titles and lists stay, a line each; markup, tables and references go."""

from __future__ import annotations

import re

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Tag, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

# Tags whose content is no prose of the article.
DROPPED_TAGS = frozenset(
    {"ref", "references", "table", "gallery", "imagemap", "timeline", "score", "math", "chem", "ce", "graph", "hiero"}
    | {"syntaxhighlight", "source", "mapframe", "templatestyles", "style", "script", "section", "indicator"}
    | {"noinclude", "includeonly", "inputbox"}
)
LINE_BREAKS = frozenset(("br", "hr", "p", "div", "blockquote", "poem", "center"))
MEDIA = re.compile(r"\s*(file|image|media|category)\s*:", re.IGNORECASE)
INTERWIKI = re.compile(r"[a-z]{2,3}(-[a-z]+)*:\S")  # [[de:Titel]]: a link to another language's article, not shown
HEADING = "\x00"  # stands before a section title, repeated by its level, until empty sections are dropped
MAGIC_WORD = re.compile(r"__[A-Z]+__")
TABLE_LINE = re.compile(r"^\s*(\{\||\|[}\-+|]|\||!).*$", re.MULTILINE)  # left over where a table's markup is unbalanced
EMPTY_BRACKETS = re.compile(r"\s*\((?:[\s,;:/]|or|and)*\)")  # "(; )": what a dropped pronunciation template leaves
OPEN_BRACKET = re.compile(r"\(\s*[,;:]+\s*")
SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]+")


def wikitext_to_text(wikitext: str) -> str:
    """Plain text of one page, lines separated by newlines; empty where nothing but markup is there.

    Raises mwparserfromhell.parser.ParserError where the page can't be parsed.
    """
    parts: list[str] = []
    _collect(mwparserfromhell.parse(wikitext.replace(HEADING, ""), skip_style_tags=True), parts)
    text = MAGIC_WORD.sub("", "".join(parts)).replace("'''", "").replace("''", "")
    return _without_empty_sections(_lines(text))


def _collect(code: Wikicode | None, parts: list[str]) -> None:
    """Append the visible text below `code` to `parts`; templates, arguments and comments have none."""
    for node in code.nodes if code else ():
        if isinstance(node, Text):
            parts.append(node.value)
        elif isinstance(node, Wikilink):
            _collect_link(node, parts)
        elif isinstance(node, ExternalLink):
            _collect(node.title if node.brackets else None, parts)
        elif isinstance(node, HTMLEntity):
            parts.append(_character(node))
        elif isinstance(node, Heading):
            parts.append("\n" + HEADING * node.level)
            _collect(node.title, parts)
            parts.append("\n")
        elif isinstance(node, Tag):
            _collect_tag(node, parts)


def _collect_link(link: Wikilink, parts: list[str]) -> None:
    target = str(link.title)
    if MEDIA.match(target) or (link.text is None and INTERWIKI.match(target)):
        return
    if link.text is None:
        parts.append(target.strip().removeprefix(":"))
    else:
        _collect(link.text, parts)


def _character(entity: HTMLEntity) -> str:
    try:
        return entity.normalize().replace(HEADING, "").encode("utf-8", "ignore").decode("utf-8")
    except (ValueError, KeyError):  # &#xFFFFFFFF; and the like name no character
        return ""


def _collect_tag(tag: Tag, parts: list[str]) -> None:
    name = str(tag.tag).strip().lower()
    if name in DROPPED_TAGS:
        return
    if name in LINE_BREAKS:
        parts.append("\n")
    _collect(tag.contents, parts)
    if name in LINE_BREAKS and not tag.self_closing:
        parts.append("\n")


def _lines(text: str) -> list[str]:
    """Lines that hold something, with whitespace normalised and the remains of dropped markup removed."""
    text = OPEN_BRACKET.sub("(", EMPTY_BRACKETS.sub("", TABLE_LINE.sub("", text)))
    lines = (SPACES.sub(" ", line).strip() for line in text.splitlines())
    return [line for line in lines if line.strip(" *#:;.,-\u2013|" + HEADING)]


def _without_empty_sections(lines: list[str]) -> str:
    """Drop a section title with no text before the next title of its own or a higher level; join the lines."""
    kept: list[str] = []
    following = 0  # level of the kept line that follows: 0 at the end, 99 for text
    for line in reversed(lines):
        title = line.lstrip(HEADING)
        level = len(line) - len(title) or 99
        if level == 99 or following > level:
            kept.append(title.strip())
            following = level
    return "\n".join(reversed(kept))
