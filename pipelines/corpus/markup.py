"""Wikitext without what holds no prose (templates, tables, references, comments), cut out in one linear look.

A wikitext parser follows every construct that may have begun to the end of the page, and again after giving it up: with
thousands that never close, two megabytes take it hours. After this look few are left, so that its time is bounded; and
being rid of most of the markup makes it several times as fast on ordinary pages.
"""

from __future__ import annotations

import re

from mwparserfromhell.definitions import PARSER_BLACKLIST

from pipelines.corpus.templates import is_kept

# Tags whose content is no prose of the article.
DROPPED_TAGS = frozenset(
    {"ref", "references", "table", "gallery", "imagemap", "timeline", "score", "math", "chem", "ce", "graph", "hiero"}
    | {"syntaxhighlight", "source", "mapframe", "templatestyles", "style", "script", "section", "indicator"}
    | {"noinclude", "includeonly", "inputbox", "categorytree", "templatedata"}
)
RAW_TAGS = frozenset(PARSER_BLACKLIST)  # between them nothing is markup
# All other tags go and leave their content; what looks like a tag and isn't one of these is text.
LINE_BREAKS = frozenset(
    {"br", "hr", "p", "div", "center", "blockquote", "poem", "ol", "ul", "dl", "li", "dt", "dd", "tr", "td", "th"}
    | {"caption", "h1", "h2", "h3", "h4", "h5", "h6"}
)
INLINE_TAGS = frozenset(
    {
        "b",
        "i",
        "u",
        "s",
        "em",
        "strong",
        "small",
        "big",
        "sub",
        "sup",
        "span",
        "font",
        "code",
        "tt",
        "kbd",
        "samp",
        "var",
    }
    | {"del", "ins", "strike", "cite", "dfn", "abbr", "q", "mark", "time", "data", "bdi", "bdo", "wbr", "onlyinclude"}
    | {"ruby", "rb", "rp", "rt", "rtc"}
)
# What takes the place of something cut out, so that what stood around it makes no new mark; and of a "<" that is text.
LINE, GAP, LESS = "\x01", "\x02", "\x03"
DEEPEST = 100  # constructs within one another: the parser gives up there, and real pages have some 20
UNCLOSED = 100  # of a page; each may cost the parser a look at the whole page
MARKS = r"""  # every alternative begins with a character of its own, no group: that makes the search fast
    \{\{+ | \}\}+ | \[\[(?:LINK(?:[^][{}<\n]*+\[\[LINK)*+)? | \]\] | \[(?=[a-zA-Z]+:|//) | \] |
    \n[ :\t]*\{\| | \n[ \t]*\|\}(?!\}) |
    <(/?)([a-zA-Z][a-zA-Z0-9]*)(?:[\s/][^<>]*)?(>?)""".replace("LINK", r"[^][{}<\n]*+\]\]")
MARK = re.compile(MARKS, re.VERBOSE)
MARK_OR_LINE = re.compile(MARKS + r" | \n", re.VERBOSE)
# "^" would be tried at every character; a line break is searched for, and stands before the first line too.
LIST_MARKS = re.compile(r"\n[*#:;]+")
TABLE = re.compile(r"\n[^\S\n]*\{\|")  # one never closed


class BadWikitext(ValueError):
    """A page that can't be turned into text in bounded time."""


def without_dropped(wikitext: str) -> str:
    """The page without comments, templates (but those in `templates`), arguments, tables, tags and list marks.

    LINE, GAP and LESS stand for line breaks, nothing, and "<". Raises BadWikitext where more than UNCLOSED constructs
    are never closed, or they are nested more than DEEPEST deep.
    """
    for mark in (LINE, GAP, LESS):
        wikitext = wikitext.replace(mark, "")
    text = _Look(_without_comments(wikitext)).prose()
    return TABLE.sub("\n|", LIST_MARKS.sub("\n", text))


def restored(text: str) -> str:
    """Visible text with what LINE, GAP and LESS stand for."""
    return text.replace(LINE, "\n").replace(GAP, "").replace(LESS, "<")


class _Look:
    """One pass over a page's marks, with a stack of what is open."""

    def __init__(self, text: str) -> None:
        self._text = "\n" + text
        self._stack: list[tuple[str, int, int]] = []  # mark, where it begins and ends
        self._cuts: list[tuple[int, int, str]] = []  # begin, end, what takes its place
        self._depth = self._unclosed = 0  # tags aside
        self._long = 0  # templates kept that have line breaks: their lines may look like other marks to the parser
        self._no_end: set[str] = set()  # raw tags of which no end follows

    def prose(self) -> str:
        at = 0
        # The end of a line says something within a web address only, and every third mark would be one.
        while match := (MARK_OR_LINE if self._stack and self._stack[-1][0] == "[" else MARK).search(self._text, at):
            at = self._mark(match)
        while self._stack:
            self._give_up()
        parts, at = [], 0
        for begin, end, instead in sorted(self._cuts, key=lambda cut: (cut[0], -cut[1])):
            if begin >= at:  # else it is within the cut before
                parts += self._text[at:begin], instead
                at = end
        return "".join(parts) + self._text[at:]

    def _mark(self, match: re.Match[str]) -> int:
        """Note one mark; return where to go on."""
        mark, (begin, end) = match[0], match.span()
        if mark[0] == "<":
            return self._tag(match)
        if mark[0] == "{":
            if end - begin > DEEPEST:
                raise BadWikitext(f"{end - begin} braces open at once")
            self._push("{{", begin, end)
        elif mark[0] == "}":
            self._close_braces(begin, end)
        elif mark[0] == "[":
            if mark[-1] == "]" and self._depth < DEEPEST:
                return end  # links with no mark in them, as nearly all are
            end = begin + len(mark[:2])
            self._push(mark[:2], begin, end)
        elif mark[0] == "]":
            self._pop("[[" if mark == "]]" else "[")
        else:
            if self._stack and self._stack[-1][0] == "[":  # a web address ends with the line, closed or not
                self._give_up()
            if mark[-1] == "|":
                self._push("{|", begin, end)
            elif mark[-1] == "}" and (opened := self._pop("{|")):
                self._cuts.append((opened[1], end, LINE))
        return end

    def _tag(self, match: re.Match[str]) -> int:
        name, (begin, end) = match[2].lower(), match.span()
        closing, alone = bool(match[1]), match[0].endswith("/>")
        if name in RAW_TAGS and not closing and not alone and (closed := self._end_of_raw(name, end)):
            if name in DROPPED_TAGS:
                self._cuts.append((begin, closed, GAP))
            return closed
        if not match[3] or not (name in INLINE_TAGS or name in LINE_BREAKS or name in DROPPED_TAGS or name in RAW_TAGS):
            self._cuts.append((begin, begin + 1, LESS))
            return match.end(2)
        opened = self._pop("<" + name) if closing and name in DROPPED_TAGS else None
        self._cuts.append((opened[1] if opened else begin, end, LINE if name in LINE_BREAKS else GAP))
        if name in DROPPED_TAGS and not closing and not alone:
            self._push("<" + name, begin, end)
        return end

    def _end_of_raw(self, name: str, begin: int) -> int | None:
        if name not in self._no_end:
            if closed := re.compile(rf"</{name}\s*>", re.IGNORECASE).search(self._text, begin):
                return closed.end()
            self._no_end.add(name)
        return None

    def _close_braces(self, at: int, end: int) -> None:
        """Close templates (two braces) and arguments (three), innermost first."""
        while end - at >= 2 and (opened := self._pop("{{")):
            _, begin, inside = opened
            count = min(inside - begin, end - at)
            count = 2 if count in (2, 4) else 3
            first = inside - count
            if count == 3 or not self._is_kept(inside, at):
                self._cuts.append((first, at + count, GAP))
            at += count
            if first - begin >= 2:
                self._push("{{", begin, first)

    def _is_kept(self, begin: int, end: int) -> bool:
        if not is_kept(self._text[begin : min(begin + 40, end)]):
            return False
        self._long += self._text.find("\n", begin, end) >= 0
        return self._long <= UNCLOSED

    def _push(self, mark: str, begin: int, end: int) -> None:
        self._stack.append((mark, begin, end))
        self._depth += not mark.startswith("<")
        self._check()

    def _pop(self, mark: str) -> tuple[str, int, int] | None:
        """The innermost open `mark`, given up what is open within it; None where there is none."""
        for back in range(1, min(len(self._stack), DEEPEST) + 1):
            if self._stack[-back][0] == mark:
                for _ in range(back - 1):
                    self._give_up()
                self._depth -= not mark.startswith("<")
                return self._stack.pop()
        return None

    def _give_up(self) -> None:
        if not self._stack.pop()[0].startswith("<"):  # of a tag, the mark was cut when it was met
            self._depth -= 1
            self._unclosed += 1
            self._check()

    def _check(self) -> None:
        if self._depth > DEEPEST:
            raise BadWikitext(f"more than {DEEPEST} templates, links or tables open at once")
        if self._unclosed > UNCLOSED:
            raise BadWikitext(f"more than {UNCLOSED} templates, links or tables are never closed")


def _without_comments(text: str) -> str:
    parts, at = [], 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        parts.append(text[at:begin])
        at = end + 3
    return "".join(parts) + text[at:].replace("<!--", "")
