"""Cut the markup without prose (templates, tables, references, comments) out of wikitext, in one
linear pass.

Without this pass, two megabytes of wikitext can take the parser hours: it follows every construct
that may have begun to the end of the page, and does so again after giving it up. Few constructs are
left after this pass, so that the parser's time is bounded, and ordinary pages are parsed several
times as fast.

Templates that templates.py shows stay. All others (infoboxes, citations, notices, pronunciations)
are dropped. Where one stood within a line a mark names it, so that those can be counted that leave
a hole in a sentence.
"""

import re
from collections import Counter
from typing import NamedTuple

from mwparserfromhell.definitions import PARSER_BLACKLIST

from pipelines.corpus.template_forms import Named
from pipelines.corpus.template_kinds import WIKITEXT
from pipelines.corpus.templates import Wiki
from pipelines.corpus.variants import without_variants

DROPPED_TAGS = frozenset(WIKITEXT["tags"]["dropped"])
MISSED_TAGS = frozenset(WIKITEXT["tags"]["missed"])
LINE_BREAKS = frozenset(WIKITEXT["tags"]["line_breaks"])
INLINE_TAGS = frozenset(WIKITEXT["tags"]["inline"])
RAW_TAGS = frozenset(PARSER_BLACKLIST)  # their content is not parsed as markup
TAGS = DROPPED_TAGS | LINE_BREAKS | INLINE_TAGS | RAW_TAGS
# Placeholders. Without them the text around a cut could join to new markup.
LINE = "\x01"  # for a cut that ends a line
GAP = "\x02"  # for any other cut
LESS = "\x03"  # for a "<" that is text
# For a cut that may leave a hole in a sentence. A character of the private use area follows, which
# numbers what was dropped.
HOLE = "\x04"
FIRST_NUMBER = 0xE000
LAST_NUMBER = 0xF8FF
HOLE_MARK = re.compile(rf"{HOLE}([\ue000-\uf8ff])")
SENTENCE_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f")
DEEPEST = 100  # nested constructs: the parser gives up there, and real pages have about 20
# constructs of a page that are never closed; for each, the parser may read the whole page again
UNCLOSED = 100
NAME_LENGTH = 60  # characters of a template's name that are read
NAME_END = re.compile(r"[|{}]")
NESTING = 3  # templates inside each other that are cut by one mark


def template_pattern(inside: str, depth: int) -> str:
    """A pattern of a template with texts of the pattern `inside`, and in it templates, `depth` of
    them inside each other with itself.
    """
    pattern = rf"\{{\{{(?!\{{)(?:{inside})*+\}}\}}"
    for _ in range(depth - 1):
        pattern = rf"\{{\{{(?!\{{)(?:{inside}|{pattern})*+\}}\}}"
    return pattern


def _marks(between_links: str) -> str:
    """A pattern of a mark, by its kind.

    The search is fast because each alternative begins with a character and not with a group. So an
    empty group at the end names the kind.
    """
    link_end = r"[^][{}<\n]*+\]\]"
    return rf"""
        \{{\{{+(?P<braces>) | \}}\}}+(?P<braces_end>) |
        \[\[(?:{link_end}(?:{between_links}*+\[\[{link_end})*+(?P<whole_links>)|(?P<link>)) |
        \]\](?P<link_end>) | \[(?=[a-zA-Z]+:|//)(?P<address>) | \](?P<address_end>) |
        \n[ :\t]*\{{\|(?P<table>) | \n[ \t]*\|\}}(?!\}})(?P<table_end>) |
        <(?P<slash>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*)(?:[\s/][^<>]*)?(?P<closed>>?)(?P<tag>)"""


# Templates and references of one line, with nothing in them but text, links and templates, as most
# are: one mark each.
ONE_LINE = r"[^][{}<\n]++|\[\[[^][{}<\n]*+\]\]|\[(?:[a-zA-Z]+:|//)[^][{}<\n]*+\]"
ONE_LINE_TEMPLATE = template_pattern(ONE_LINE, NESTING)
REFERENCE = (
    r"<[rR][eE][fF](?:[\s/][^<>]*)?"
    rf"(?:(?<=/)>|(?<!/)>(?:{ONE_LINE}|{ONE_LINE_TEMPLATE})*+</[rR][eE][fF]\s*>)"
)
WHOLE = rf"{ONE_LINE_TEMPLATE}(?!\}})(?P<whole_template>) | {REFERENCE}(?P<whole_reference>)"
LINE_MARKS = _marks(r"[^][{}<\n]")
SINGLE = re.compile(LINE_MARKS, re.VERBOSE)
MARK = re.compile(rf"{WHOLE} | {_marks('[^][{}<]')}", re.VERBOSE)
MARK_OR_LINE = re.compile(rf"{WHOLE} | {LINE_MARKS} | \n(?P<line>)", re.VERBOSE)
# Kind of a mark -> the mark that it opens, or that was open and ends. A table's lines are special.
OPENED = {"link": "[[", "address": "[", "braces": "{{"}
CLOSED = {"link_end": "[[", "address_end": "["}
# This begins with the line break before a line, because a pattern with "^" would be tried at every
# character.
LIST_MARKS = re.compile(r"\n[*#:;]+")
TABLE = re.compile(r"\n[^\S\n]*\{\|")  # a table that is never closed


class BadWikitext(ValueError):
    """A page that can't be turned into text in bounded time."""


class WikiPage:
    """A page of a Wikipedia, with numbers for what is dropped from it."""

    def __init__(self, wiki: Wiki) -> None:
        self.wiki = wiki
        self._numbers: dict[str, int] = {}

    def hole(self, name: str) -> str:
        """The mark that stands for a dropped template or tag."""
        name = " ".join(name.split())
        number = self._numbers.setdefault(name, FIRST_NUMBER + len(self._numbers))
        return HOLE + chr(min(number, LAST_NUMBER))

    def template(self, name: str, parameters: list[Named]) -> str:
        """The text that a reader sees of a template with (name or None, value) parameters, or the
        mark of a dropped one.
        """
        text = self.wiki.text(name, parameters)
        return self.hole(name) if text is None else text

    def holes(self, text: str) -> Counter[str]:
        """How often each template or tag was dropped within a sentence of a text with marks: a line
        has text before the mark, which does not end there, and text after it.
        """
        names = {chr(number): name for name, number in self._numbers.items()}
        holes: Counter[str] = Counter()
        for line in text.split("\n"):
            if HOLE in line:
                numbers = _numbers_of_holes(line)
                holes.update(names[number] for number in numbers)
        return holes


def _numbers_of_holes(line: str) -> list[str]:
    """The characters that number the holes within the sentences of a line."""
    parts = HOLE_MARK.split(line)
    texts = [text.strip(" \t") for text in parts[::2]]
    numbers = parts[1::2]
    while texts and not texts[-1]:  # nothing follows the last holes
        texts.pop()

    of_holes = []
    before = ""
    for text, number in zip(texts[:-1], numbers, strict=False):
        before = text[-1:] or before
        if before and before not in SENTENCE_ENDS:
            of_holes.append(number)
    return of_holes


def without_dropped(wikitext: str, page: WikiPage) -> str:
    """The page without comments, templates (except those that are shown), arguments, tables, tags
    and list marks.

    It has the placeholders LINE, GAP, LESS and HOLE. Raises BadWikitext for more than UNCLOSED or
    DEEPEST constructs.
    """
    for mark in (LINE, GAP, LESS, HOLE):
        wikitext = wikitext.replace(mark, "")
    wikitext = without_variants(_without_comments(wikitext), page.wiki.variants)
    text = _MarkupPass(wikitext, page).prose()
    return TABLE.sub("\n|", LIST_MARKS.sub("\n", text))


def restored(text: str) -> str:
    """The text with its placeholders LINE, GAP and LESS replaced."""
    return text.replace(LINE, "\n").replace(GAP, "").replace(LESS, "<")


def without_holes(text: str) -> str:
    """The text without the marks for what was dropped."""
    return HOLE_MARK.sub("", text)


class _Open(NamedTuple):
    """A construct that is open."""

    mark: str
    begin: int
    end: int  # of the mark

    @property
    def is_tag(self) -> bool:
        return self.mark.startswith("<")


def _braces_to_close(n_braces: int) -> int:
    """How many of so many facing braces are closed together: two by a template, three by an
    argument.

    2 -> 2, 3 -> 3, 4 -> 2 (two templates), 5 -> 3 (an argument in a template), 6 -> 3.
    """
    return 2 if n_braces in (2, 4) else 3


class _Cut(NamedTuple):
    """A part of the text that goes."""

    begin: int
    end: int
    placeholder: str


def _outer_first(cut: _Cut) -> tuple[int, int]:
    """The order of cuts by their beginning, and of two that begin together the longer one first."""
    return cut.begin, -cut.end


class _MarkupPass:
    """One pass over the marks of a page, with a stack of the constructs that are open."""

    def __init__(self, text: str, page: WikiPage) -> None:
        self._text = "\n" + text
        self._page = page
        self._stack: list[_Open] = []
        self._cuts: list[_Cut] = []
        self._depth = 0  # open constructs that are not tags
        self._unclosed = 0  # constructs that are not tags, and were never closed
        # kept templates of several lines; the parser may take their lines for other marks
        self._long = 0
        self._no_end: set[str] = set()  # raw tags whose end does not follow any more

    def prose(self) -> str:
        """The text without the constructs that go."""
        match = self._next_mark(0)
        while match:
            match = self._next_mark(self._mark(match))
        while self._stack:
            self._give_up()

        parts = []
        end = 0
        for cut in sorted(self._cuts, key=_outer_first):
            if cut.begin >= end:  # else this cut is inside the one before
                parts.append(self._text[end : cut.begin])
                parts.append(cut.placeholder)
                end = cut.end
        return "".join(parts) + self._text[end:]

    def _in_address(self) -> bool:
        """Whether a web address is the innermost open construct."""
        return bool(self._stack) and self._stack[-1].mark == "["

    def _next_mark(self, begin: int) -> re.Match[str] | None:
        """The next mark from a place on.

        Line breaks matter inside web addresses only. Elsewhere they are not searched for, to have
        fewer marks.
        """
        pattern = MARK_OR_LINE if self._in_address() else MARK
        return pattern.search(self._text, begin)

    def _mark(self, match: re.Match[str]) -> int:
        """Process one mark; return the place from which to search for the next one."""
        kind = match.lastgroup
        begin, end = match.span()
        if kind == "whole_links":
            if self._depth < DEEPEST:
                return end  # complete links without marks inside, as nearly all links are
            kind = "link"
        if kind == "link":
            end = begin + len("[[")

        if kind == "tag":
            end = self._tag(match)
        elif kind in ("whole_template", "whole_reference"):
            end = self._whole(kind, begin, end)
        elif kind == "braces_end":
            self._close_braces(begin, end)
        elif kind in OPENED:
            self._push(OPENED[kind], begin, end)
        elif kind in CLOSED:
            self._pop(CLOSED[kind])
        else:
            self._line_mark(kind, begin, end)
        return end

    def _line_mark(self, kind: str | None, begin: int, end: int) -> None:
        """Process a mark that begins with a line break: of a table, or the break alone."""
        if self._in_address():  # a web address ends with its line
            self._give_up()
        if kind == "table":
            self._push("{|", begin, end)
        elif kind == "table_end":
            table = self._pop("{|")
            if table:
                self._cuts.append(_Cut(table.begin, end, LINE))

    def _whole(self, kind: str, begin: int, end: int) -> int:
        """Cut a reference or a template that is not shown. One that has to be looked into is read
        mark by mark; return the place from which to search on.
        """
        placeholder: str | None = GAP
        if kind == "whole_template":
            placeholder = self._for_template(begin, begin + 2, end - 2)
        kept = placeholder is None
        has_template = kept and self._text.find("{{", begin + 2, end) >= 0
        if self._depth + NESTING >= DEEPEST or has_template:
            first_mark = SINGLE.match(self._text, begin)
            assert first_mark, "a construct begins with a mark"
            return self._mark(first_mark)
        if placeholder is not None:
            self._cuts.append(_Cut(begin, end, placeholder))
        return end

    def _tag(self, match: re.Match[str]) -> int:
        """Process a tag; return the place from which to search for the next mark."""
        name = match["name"].lower()
        begin, end = match.span()
        is_end = bool(match["slash"])
        has_content = not is_end and not match[0].endswith("/>")
        if name in RAW_TAGS and has_content:
            end_of_raw = self._end_of_raw(name, end)
            if end_of_raw:
                if name in DROPPED_TAGS:
                    self._cuts.append(_Cut(begin, end_of_raw, self._for_tag(name)))
                return end_of_raw
        if not match["closed"] or name not in TAGS:
            self._cuts.append(_Cut(begin, begin + 1, LESS))
            return match.end("name")

        placeholder = LINE if name in LINE_BREAKS else GAP
        if is_end and name in DROPPED_TAGS:
            opened = self._pop("<" + name)
            if opened:
                begin = opened.begin
                placeholder = self._for_tag(name)
        self._cuts.append(_Cut(begin, end, placeholder))
        if has_content and name in DROPPED_TAGS:
            self._push("<" + name, begin, end)
        return end

    def _for_tag(self, name: str) -> str:
        """What stands for a tag that is dropped with its content."""
        return self._page.hole(f"<{name}>") if name in MISSED_TAGS else GAP

    def _end_of_raw(self, name: str, begin: int) -> int | None:
        """Where the end tag of a raw tag ends; None if none follows."""
        if name in self._no_end:
            return None
        end_tag = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(self._text, begin)
        if end_tag:
            return end_tag.end()
        self._no_end.add(name)
        return None

    def _close_braces(self, begin: int, end: int) -> None:
        """Close templates (two braces) and arguments (three), innermost first."""
        while end - begin >= 2:
            opened = self._pop("{{")
            if not opened:
                return
            count = _braces_to_close(min(opened.end - opened.begin, end - begin))
            first = opened.end - count
            placeholder: str | None = GAP
            if count == 2:
                placeholder = self._for_template(first, opened.end, begin)
            if placeholder is not None:
                self._cuts.append(_Cut(first, begin + count, placeholder))
            begin += count
            if first - opened.begin >= 2:
                self._push("{{", opened.begin, first)

    def _for_template(self, braces: int, begin: int, end: int) -> str | None:
        """What stands for a template that is dropped; None for one that is shown.

        UNCLOSED templates with several lines may be shown.
        """
        name = NAME_END.split(self._text[begin : min(begin + NAME_LENGTH, end)], maxsplit=1)[0]
        form = self._page.wiki.form(name)
        begins_line = self._text[braces - 1] == "\n"
        if form == "" or (form is None and begins_line):
            return GAP
        if form is not None:
            if self._text.find("\n", begin, end) >= 0:
                self._long += 1
            if self._long <= UNCLOSED:
                return None
        return self._page.hole(name)

    def _push(self, mark: str, begin: int, end: int) -> None:
        if mark == "{{" and end - begin > DEEPEST:
            raise BadWikitext(f"{end - begin} braces open at once")
        opened = _Open(mark, begin, end)
        self._stack.append(opened)
        if not opened.is_tag:
            self._depth += 1
        self._check()

    def _pop(self, mark: str) -> _Open | None:
        """Close the innermost open `mark`, giving up what is open inside it; None if no such mark
        is open.
        """
        for back in range(1, min(len(self._stack), DEEPEST) + 1):
            if self._stack[-back].mark == mark:
                for _ in range(back - 1):
                    self._give_up()
                opened = self._stack.pop()
                if not opened.is_tag:
                    self._depth -= 1
                return opened
        return None

    def _give_up(self) -> None:
        given_up = self._stack.pop()
        if not given_up.is_tag:  # the mark of a tag has been cut already
            self._depth -= 1
            self._unclosed += 1
            self._check()

    def _check(self) -> None:
        if self._depth > DEEPEST:
            raise BadWikitext(f"more than {DEEPEST} templates, links or tables open at once")
        if self._unclosed > UNCLOSED:
            raise BadWikitext(f"more than {UNCLOSED} templates, links or tables are never closed")


def _without_comments(text: str) -> str:
    parts: list[str] = []
    end = 0
    while True:
        begin = text.find("<!--", end)
        close = text.find("-->", begin + 4)
        if begin < 0 or close < 0:
            return "".join(parts) + text[end:].replace("<!--", "")
        parts.append(text[end:begin])
        end = close + 3
