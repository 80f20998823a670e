"""Turn wikitext into plain text: prose, section titles and list items stay, one per line; markup
and tables go.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from html import unescape

from mwparserfromhell.definitions import URI_SCHEMES
from mwparserfromhell.parser import CTokenizer, ParserError, tokens
from mwparserfromhell.parser.tokenizer import Tokenizer

from pipelines.corpus.markup import (
    DROPPED_TAGS,
    BadWikitext,
    WikiPage,
    restored,
    template_pattern,
    without_dropped,
    without_holes,
)
from pipelines.corpus.template_forms import Named
from pipelines.corpus.templates import read_wiki
from pipelines.language.language import ENGLISH, MediaWiki

# [[de:Titel]], a link to the article in another language
INTERWIKI = re.compile(r"[a-z]{2,3}(-[a-z]+)*:\S")
HEADING = "\x00"  # marks a section title, as often as its level, until empty sections are dropped
TEXT = 99  # the level of a line that is no title: below all titles
MAGIC_WORD = re.compile(r"__[A-Z]+__")
TABLE_LINE = re.compile(r"\n[^\S\n]*(?:\{\||\||!).*")  # of a table with unbalanced markup
# "(; )" is left when a pronunciation is dropped
EMPTY_BRACKETS = re.compile(r"\((?:[\s,;:/]|or|and)*\)")
OPEN_BRACKET = re.compile(r"\(\s*[,;:]+\s*")
QUOTES = re.compile("'''?")  # bold and italic
SPACES = re.compile("  +")
OTHER_SPACE = re.compile(r"[\t\u00a0\u2000-\u200a\u202f\u3000]")

# Texts of one line with balanced [a] and [[a]], of several lines without titles, and templates with
# such texts.
ONE_LINE = r"[^][{}<>\n]++|\[[^][{}<>\n]*+\](?!\])|\[\[[^][{}<>\n]*+\]\]"
LINES = rf"{ONE_LINE}|\n(?!=)"
TEMPLATE = template_pattern(LINES, 2) + r"(?!\})"
PLAIN_TEMPLATE = re.compile(r"\{\{([^][{}<>&:'\n]*)\}\}")  # has nothing for the parser
SCHEMES = "|".join(f"(?<=(?i:{scheme}):)" for scheme, slashes in URI_SCHEMES.items() if not slashes)
# The last group that takes part names what a match is. A mark without a group may reach further
# than it seems to. The search is fast because each alternative begins with a character.
CONSTRUCT = re.compile(
    rf"""\[\[(?!//)(?P<target>[^][{{}}<>|\n:&]++)(?:\|(?P<label>[^][{{}}<>\n:&]*+))?\]\]
    | \[\[[^][{{}}<>|\n]*+(?:\|(?:{LINES}|{TEMPLATE})*+)?\]\](?P<link>)
    | &\#?[a-zA-Z0-9]+;(?P<entity>)
    | \n(?P<level>={{1,6}}+)(?P<title>[^][{{}}<>&:=\n]++)(?P=level)(?=[ ]*\n)
    | \n=(?:{ONE_LINE}|{TEMPLATE})*+(?=\n|\Z)(?P<other_title>)
    | {TEMPLATE}(?P<template>) | \[(?:[a-zA-Z]+:)?//[^][{{}}<>\n]*+\](?P<address>)
    | \[\[ | \{{\{{ | </ | /> | \n= | \n---- | \[// | :// | :(?=[^\ \n\]])(?:{SCHEMES})""",
    re.VERBOSE,
)

CLOSE = frozenset(
    [
        tokens.TemplateClose,
        tokens.ArgumentClose,
        tokens.WikilinkClose,
        tokens.ExternalLinkClose,
        tokens.HTMLEntityEnd,
        tokens.HeadingEnd,
        tokens.CommentEnd,
        tokens.TagCloseClose,
        tokens.TagCloseSelfclose,
    ]
)
Fields = list[tuple[type, list[str]]]  # a construct's texts, each with the kind of token before it


def wikitext_to_text(
    wikitext: str, media: MediaWiki = ENGLISH.media, dropped: Counter[str] | None = None
) -> str:
    """The plain text of one page, in lines; empty if the page has nothing but markup.

    `media` is what the language's Wikipedia shows. `dropped` takes the names of templates and tags
    that are dropped within a sentence. Time and memory grow with the length of the page only.
    Raises BadWikitext if the page can't be parsed.
    """
    page = WikiPage(read_wiki(media))
    prose = without_dropped(wikitext.replace(HEADING, ""), page)
    text = restored(visible(prose, page))
    text = QUOTES.sub("", MAGIC_WORD.sub("", text))
    if dropped is not None:
        dropped.update(page.holes(text))
    return _without_empty_sections(_lines(without_holes(text)))


def visible(prose: str, page: WikiPage) -> str:
    """The text that a reader sees of what `without_dropped` left, the same as `parsed` gives, in a
    third of the time.

    The parser gets only constructs other than plain links and titles, each by itself. Where one may
    reach further than it seems to, as one does that is never closed, the parser gets the whole
    page.
    """

    def shown(match: re.Match[str]) -> str:
        kind = match.lastgroup
        if kind is None:
            raise _Entangled
        if kind == "label":
            return match["label"]
        if kind == "target":
            return match["target"].strip()
        if kind == "title":
            return f"\n{_title(len(match['level']), match['title'])}"
        if kind == "entity":
            return _entity_alone(match[0])
        if kind == "link" and page.wiki.hidden_link.match(match[0], 2):
            return ""
        return _alone(match[0], page)

    try:
        return CONSTRUCT.sub(shown, prose)
    except _Entangled:
        return parsed(prose, page)


class _Entangled(Exception):
    """A page has a mark that can't be read by itself."""


def parsed(prose: str, page: WikiPage) -> str:
    """The text that a reader sees, by mwparserfromhell alone."""
    try:
        stream = (CTokenizer or Tokenizer)().tokenize(prose, 0, True)
    except ParserError as error:
        raise BadWikitext(str(error)) from None
    return _visible(stream, page)


@lru_cache(1 << 10)
def _entity_alone(entity: str) -> str:
    return parsed(entity, WikiPage(read_wiki(ENGLISH.media)))


def _visible(stream: Iterable[tokens.Token], page: WikiPage) -> str:
    """The text that a reader sees, from the parser's tokens. (Its tree of nodes would take four
    times as long.)
    """
    outer: list[tuple[tokens.Token, Fields, list[str]]] = []
    opened = tokens.Text()  # the token that opened the innermost construct; Text stands for none
    fields: Fields = []
    parts: list[str] = []
    for token in stream:
        token_type = type(token)
        if token_type is tokens.Text:
            parts.append(token["text"])
        elif token_type in SHOWN:
            outer.append((opened, fields, parts))
            opened = token
            parts = []
            fields = [(token_type, parts)]
        elif token_type in CLOSE:
            text = _construct(opened, fields, page)
            opened, fields, parts = outer.pop()
            parts.append(text)
        else:
            parts = []
            fields.append((token_type, parts))
    return "".join(parts)


def _construct(opened: tokens.Token, fields: Fields, page: WikiPage) -> str:
    """The text that a reader sees of a construct that the token `opened` began."""
    if type(opened) is tokens.TemplateOpen:
        return _template(fields, page)
    if type(opened) is tokens.WikilinkOpen and page.wiki.hidden_link.match(_text(fields[0])):
        return ""
    return SHOWN[type(opened)](opened, fields)


def _text(field: tuple[type, list[str]]) -> str:
    """A field's text."""
    _, parts = field
    return "".join(parts)


def _alone(construct: str, page: WikiPage) -> str:
    """The text that a reader sees of one construct. A template without markup in it needs no
    parser.
    """
    plain = PLAIN_TEMPLATE.fullmatch(construct)
    if not plain:
        return parsed(construct, page)
    name, *values = plain[1].split("|")
    parameters: list[Named] = []
    for text in values:
        key, equals, value = text.partition("=")
        parameters.append((key, value) if equals else (None, text))
    return page.template(name, parameters)


def _template(fields: Fields, page: WikiPage) -> str:
    parameters: list[Named] = []
    for token_type, parts in fields[1:]:
        text = "".join(parts)
        if token_type is tokens.TemplateParamSeparator:
            parameters.append((None, text))
        else:  # what came before was the parameter's name
            before = parameters.pop()
            parameters.append((before[1], text))
    return page.template(_text(fields[0]), parameters)


def _link(_: tokens.Token, fields: Fields) -> str:
    if len(fields) > 1:
        return _text(fields[-1])
    target = _text(fields[0])
    if INTERWIKI.match(target):
        return ""
    return target.strip().removeprefix(":")


def _external_link(opened: tokens.Token, fields: Fields) -> str:
    if opened.get("brackets") and len(fields) > 1:
        return _text(fields[1])
    return ""


def _heading(opened: tokens.Token, fields: Fields) -> str:
    return _title(opened["level"], _text(fields[0]))


def _title(level: int, text: str) -> str:
    return f"\n{HEADING * level}{text}\n"


def _entity(_: tokens.Token, fields: Fields) -> str:
    marks = {tokens.HTMLEntityNumeric: "#", tokens.HTMLEntityHex: "#x"}
    token_type, parts = fields[-1]
    return unescape(f"&{marks.get(token_type, '')}{''.join(parts)};")


def _tag(_: tokens.Token, fields: Fields) -> str:
    if _text(fields[0]).strip().lower() in DROPPED_TAGS:
        return ""
    contents = [_text(field) for field in fields if field[0] is tokens.TagCloseOpen]
    return "".join(contents)


def _nothing(_: tokens.Token, __: Fields) -> str:
    return ""


# The token that opens a construct -> what is shown of it.
SHOWN: dict[type, Callable[[tokens.Token, Fields], str]] = {
    tokens.TemplateOpen: _nothing,  # _construct knows more of it
    tokens.ArgumentOpen: _nothing,
    tokens.CommentStart: _nothing,
    tokens.WikilinkOpen: _link,
    tokens.ExternalLinkOpen: _external_link,
    tokens.HTMLEntityStart: _entity,
    tokens.HeadingStart: _heading,
    tokens.TagOpenOpen: _tag,
}


def _lines(text: str) -> list[str]:
    """The lines that have text, with normal whitespace and without the remains of dropped
    markup.
    """
    text = TABLE_LINE.sub("\n", f"\n{text}")
    text = OPEN_BRACKET.sub("(", _without_empty_brackets(text))
    text = SPACES.sub(" ", OTHER_SPACE.sub(" ", text))
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line.strip(" *#:;.,-\u2013|" + HEADING)]


def _without_empty_brackets(text: str) -> str:
    """Drop empty brackets and the space before them, which is not in the pattern, so that the
    search stays fast.
    """
    parts = []
    end = 0
    for brackets in EMPTY_BRACKETS.finditer(text):
        parts.append(text[end : brackets.start()].rstrip())
        end = brackets.end()
    return "".join(parts) + text[end:]


def _without_empty_sections(lines: list[str]) -> str:
    """Join the lines, without titles that no text follows before the next title of the same or a
    higher level.
    """
    reversed_lines: list[str] = []
    following = 0  # level of the next line that stays: 0 at the end of the page, TEXT for text
    for line in reversed(lines):
        title = line.lstrip(HEADING)
        level = len(line) - len(title) or TEXT
        if level == TEXT or following > level:
            # a title within a link is no title
            reversed_lines.append(title.replace(HEADING, "").strip())
            following = level
    return "\n".join(reversed(reversed_lines))
