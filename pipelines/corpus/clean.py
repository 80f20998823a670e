"""Turn wikitext into plain text: prose, section titles and list items stay, one per line; markup and tables go."""

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from html import unescape

from mwparserfromhell.definitions import URI_SCHEMES
from mwparserfromhell.parser import CTokenizer, ParserError, tokens
from mwparserfromhell.parser.tokenizer import Tokenizer

from pipelines.corpus.markup import (
    DROPPED_TAGS,
    BadWikitext,
    restored,
    template_text,
    without_dropped,
)
from pipelines.language.language import ENGLISH

INTERWIKI = re.compile(
    r"[a-z]{2,3}(-[a-z]+)*:\S"
)  # [[de:Titel]], a link to the article in another language
HEADING = "\x00"  # marks a section title, as often as its level, until empty sections are dropped
MAGIC_WORD = re.compile(r"__[A-Z]+__")
TABLE_LINE = re.compile(r"\n[^\S\n]*(?:\{\||\||!).*")  # of a table with unbalanced markup
EMPTY_BRACKETS = re.compile(
    r"\((?:[\s,;:/]|or|and)*\)"
)  # "(; )" is left when a pronunciation is dropped
OPEN_BRACKET = re.compile(r"\(\s*[,;:]+\s*")
QUOTES = re.compile("'''?")  # bold and italic
SPACES = re.compile("  +")
OTHER_SPACE = re.compile(r"[\t\u00a0\u2000-\u200a\u202f\u3000]")

# Texts of one line with balanced [a] and [[a]], of several lines without titles, and templates with such texts.
ONE_LINE = r"[^][{}<>\n]++|\[[^][{}<>\n]*+\](?!\])|\[\[[^][{}<>\n]*+\]\]"
LINES = rf"{ONE_LINE}|\n(?!=)"
INNER = rf"\{{\{{(?!\{{)(?:{LINES})*+\}}\}}"
TEMPLATE = rf"\{{\{{(?!\{{)(?:{LINES}|{INNER})*+\}}\}}(?!\}})"
SCHEMES = "|".join(f"(?<=(?i:{scheme}):)" for scheme, slashes in URI_SCHEMES.items() if not slashes)
# The number of a construct's last group is its kind; the kinds beyond TITLE have no name. A mark without a
# kind may reach further than it seems to. The search is fast because each alternative begins with a character.
PLAIN, PIPED, NAMESPACE, ENTITY, LEVEL, TITLE = range(1, 7)
CONSTRUCT = re.compile(
    rf"""\[\[(?!//)([^][{{}}<>|\n:&]++)(?:\|([^][{{}}<>\n:&]*+))?\]\]
    | \[\[[^][{{}}<>|\n]*+(?:\|(?:{LINES}|{TEMPLATE})*+)?\]\]() | &\#?[a-zA-Z0-9]+;()
    | \n(={{1,6}}+)([^][{{}}<>&:=\n]++)\5(?=[ ]*\n) | {TEMPLATE}()
    | \n=(?:{ONE_LINE}|{TEMPLATE})*+(?=\n|\Z)() | \[(?:[a-zA-Z]+:)?//[^][{{}}<>\n]*+\]()
    | \[\[ | \{{\{{ | </ | /> | \n= | \n---- | \[// | :// | :(?=[^\ \n\]])(?:{SCHEMES})""",
    re.VERBOSE,
)

OPEN = frozenset(
    {
        tokens.TemplateOpen,
        tokens.ArgumentOpen,
        tokens.WikilinkOpen,
        tokens.ExternalLinkOpen,
        tokens.HTMLEntityStart,
    }
    | {tokens.HeadingStart, tokens.CommentStart, tokens.TagOpenOpen}
)
CLOSE = frozenset(
    {
        tokens.TemplateClose,
        tokens.ArgumentClose,
        tokens.WikilinkClose,
        tokens.ExternalLinkClose,
        tokens.HTMLEntityEnd,
    }
    | {tokens.HeadingEnd, tokens.CommentEnd, tokens.TagCloseClose, tokens.TagCloseSelfclose}
)
Fields = list[tuple[type, list[str]]]  # a construct's texts, each with the kind of token before it


def wikitext_to_text(wikitext: str, media: str = ENGLISH.media) -> str:
    """The plain text of one page, in lines; empty if the page has nothing but markup.

    `media` is what links to files and categories begin with, with spaces between. Time and memory grow with the length
    of the page only. Raises BadWikitext if the page can't be parsed.
    """
    shown = visible(without_dropped(wikitext.replace(HEADING, "")), _prefixes(media))
    return _without_empty_sections(_lines(QUOTES.sub("", MAGIC_WORD.sub("", restored(shown)))))


def visible(prose: str, media: re.Pattern) -> str:
    """The text that a reader sees of what `without_dropped` left, the same as `parsed` gives, in a third of the time.

    The parser gets only constructs other than plain links and titles, each by itself. Where one may reach further than
    it seems to, as one does that is never closed, the parser gets the whole page.
    """

    def shown(found: re.Match[str]) -> str:
        kind = found.lastindex
        if kind == PIPED:
            return found[PIPED]
        if kind == PLAIN:
            return found[PLAIN].strip()
        if kind == TITLE:
            return f"\n{_title(len(found[LEVEL]), found[TITLE])}"
        if kind == NAMESPACE and media.match(found[0], 2):
            return ""
        if kind is None:
            raise _Entangled
        return _entity_alone(found[0]) if kind == ENTITY else parsed(found[0], media)

    try:
        return CONSTRUCT.sub(shown, prose)
    except _Entangled:
        return parsed(prose, media)


class _Entangled(Exception):
    """A page has a mark that can't be read by itself."""


def parsed(prose: str, media: re.Pattern) -> str:
    """The text that a reader sees, by mwparserfromhell alone."""
    try:
        stream = (CTokenizer or Tokenizer)().tokenize(prose, 0, True)
    except ParserError as error:
        raise BadWikitext(str(error)) from None
    return _visible(stream, media)


_entity_alone = lru_cache(1 << 10)(lambda entity: parsed(entity, _prefixes("")))


@cache
def _prefixes(media: str) -> re.Pattern:
    return re.compile(rf"\s*({'|'.join(map(re.escape, media.split()))})\s*:", re.IGNORECASE)


def _visible(stream: Iterable[tokens.Token], media: re.Pattern) -> str:
    """The text that a reader sees, from the parser's tokens. (Its tree of nodes would take four times as long.)"""
    outer: list[tuple[tokens.Token, Fields, list[str]]] = []
    opened = tokens.Text()  # the token that opened the innermost construct; Text stands for none
    fields: Fields = []
    parts: list[str] = []
    for token in stream:
        kind = type(token)
        if kind is tokens.Text:
            parts.append(token["text"])
        elif kind in OPEN:
            outer.append((opened, fields, parts))
            opened, parts = token, []
            fields = [(kind, parts)]
        elif kind in CLOSE:
            show = SHOWN.get(type(opened))
            dropped = type(opened) is tokens.WikilinkOpen and media.match("".join(fields[0][1]))
            text = show(opened, fields) if show and not dropped else ""
            opened, fields, parts = outer.pop()
            parts.append(text)
        else:
            parts = []
            fields.append((kind, parts))
    return "".join(parts)


def _template(_: tokens.Token, fields: Fields) -> str:
    parameters: list[tuple[str | None, str]] = []
    for kind, parts in fields[1:]:
        text = "".join(parts)
        if kind is tokens.TemplateParamSeparator:
            parameters.append((None, text))
        else:
            parameters[-1] = (parameters[-1][1], text)
    return template_text("".join(fields[0][1]), parameters)


def _link(_: tokens.Token, fields: Fields) -> str:
    target, text = "".join(fields[0][1]), "".join(fields[-1][1])
    if len(fields) == 1 and INTERWIKI.match(target):
        return ""
    return text if len(fields) > 1 else target.strip().removeprefix(":")


def _title(level: int, text: str) -> str:
    return f"\n{HEADING * level}{text}\n"


def _entity(_: tokens.Token, fields: Fields) -> str:
    marks = {tokens.HTMLEntityNumeric: "#", tokens.HTMLEntityHex: "#x"}
    return unescape(f"&{marks.get(fields[-1][0], '')}{''.join(fields[-1][1])};")


def _tag(_: tokens.Token, fields: Fields) -> str:
    if "".join(fields[0][1]).strip().lower() in DROPPED_TAGS:
        return ""
    return "".join("".join(parts) for kind, parts in fields if kind is tokens.TagCloseOpen)


# Constructs without a function, comments and arguments, are not shown.
SHOWN: dict[type, Callable[[tokens.Token, Fields], str]] = {
    tokens.TemplateOpen: _template,
    tokens.WikilinkOpen: _link,
    tokens.ExternalLinkOpen: lambda opened, fields: (
        "".join(fields[1][1]) if opened.get("brackets") and len(fields) > 1 else ""
    ),
    tokens.HTMLEntityStart: _entity,
    tokens.HeadingStart: lambda opened, fields: _title(opened["level"], "".join(fields[0][1])),
    tokens.TagOpenOpen: _tag,
}


def _lines(text: str) -> list[str]:
    """The lines that have text, with normal whitespace and without the remains of dropped markup."""
    text = OPEN_BRACKET.sub("(", _without_empty_brackets(TABLE_LINE.sub("\n", f"\n{text}")))
    text = SPACES.sub(" ", OTHER_SPACE.sub(" ", text))
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line.strip(" *#:;.,-\u2013|" + HEADING)]


def _without_empty_brackets(text: str) -> str:
    """Drop empty brackets and the space before them, which is not in the pattern, so that the search stays fast."""
    parts, at = [], 0
    for brackets in EMPTY_BRACKETS.finditer(text):
        parts.append(text[at : brackets.start()].rstrip())
        at = brackets.end()
    return "".join(parts) + text[at:]


def _without_empty_sections(lines: list[str]) -> str:
    """Join the lines, without titles that no text follows before the next title of the same or a higher level."""
    kept: list[str] = []
    following = 0  # level of the next line that is kept: 0 at the end of the page, 99 for text
    for line in reversed(lines):
        title = line.lstrip(HEADING)
        level = len(line) - len(title) or 99
        if level == 99 or following > level:
            kept.append(title.replace(HEADING, "").strip())  # a title within a link is no title
            following = level
    return "\n".join(reversed(kept))
