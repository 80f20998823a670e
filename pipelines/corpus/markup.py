"""Cut the markup without prose (templates, tables, references, comments) out of wikitext, in one linear pass.

Without this pass, two megabytes of wikitext can take the parser hours: it follows every construct that may have begun
to the end of the page, and does so again after giving it up. Few constructs are left after this pass, so that the
parser's time is bounded, and ordinary pages are parsed several times as fast.

Templates that are part of a sentence stay; `template_text` gives the text that a reader sees of them. All other
templates (infoboxes, citations, notices, pronunciations) are dropped.
"""

import re
from pathlib import Path

import yaml
from mwparserfromhell.definitions import PARSER_BLACKLIST

_READ = yaml.safe_load(Path(__file__).with_name("wikitext.yaml").read_text(encoding="utf-8"))
DROPPED_TAGS, LINE_BREAKS, INLINE_TAGS = (
    frozenset(_READ["tags"][of]) for of in ("dropped", "line_breaks", "inline")
)
RAW_TAGS = frozenset(PARSER_BLACKLIST)  # their content is not parsed as markup
# Placeholders for a cut that ends a line, for any other cut, and for a "<" that is text. Without them the text around a
# cut could join to new markup.
LINE, GAP, LESS = "\x01", "\x02", "\x03"
DEEPEST = 100  # nested constructs: the parser gives up there, and real pages have about 20
UNCLOSED = 100  # constructs of a page that are never closed; for each, the parser may read the whole page again
# Templates and references of one line, with nothing in them but text, links and templates, as most are: one mark each.
INSIDE = r"[^][{}<\n]++|\[\[[^][{}<\n]*+\]\]|\[(?:[a-zA-Z]+:|//)[^][{}<\n]*+\]"
INNERMOST = rf"\{{\{{(?!\{{)(?:{INSIDE})*+\}}\}}"
INNER = rf"\{{\{{(?!\{{)(?:{INSIDE}|{INNERMOST})*+\}}\}}"
TEMPLATE = rf"\{{\{{(?!\{{)(?:{INSIDE}|{INNER})*+\}}\}}"
REFERENCE = (
    rf"<[rR][eE][fF](?:[\s/][^<>]*)?(?:(?<=/)>|(?<!/)>(?:{INSIDE}|{TEMPLATE})*+</[rR][eE][fF]\s*>)"
)
WHOLE = rf"{TEMPLATE}(?!\}})|{REFERENCE}|"
NESTING = 4  # constructs that are open at once in a whole one, with itself
MARKS = r"""  # the search is fast because each alternative begins with a character and not with a group
    \{\{+ | \}\}+ | \[\[(?:LINK(?:BETWEEN*+\[\[LINK)*+)? | \]\] | \[(?=[a-zA-Z]+:|//) | \] |
    \n[ :\t]*\{\| | \n[ \t]*\|\}(?!\}) |
    <(/?)([a-zA-Z][a-zA-Z0-9]*)(?:[\s/][^<>]*)?(>?)""".replace("LINK", r"[^][{}<\n]*+\]\]")
SINGLE = re.compile(MARKS.replace("BETWEEN", r"[^][{}<\n]"), re.VERBOSE)
MARK = re.compile(WHOLE + MARKS.replace("BETWEEN", "[^][{}<]"), re.VERBOSE)
MARK_OR_LINE = re.compile(WHOLE + SINGLE.pattern + r" | \n", re.VERBOSE)
# This begins with the line break before a line, because a pattern with "^" would be tried at every character.
LIST_MARKS = re.compile(r"\n[*#:;]+")
TABLE = re.compile(r"\n[^\S\n]*\{\|")  # a table that is never closed
# Each template -> the number of its shown parameter, each -> its text, each word of a range -> what is shown for it.
SHOWN_PARAMETER, FIXED, BETWEEN = (
    {name: shown for shown, names in _READ[of].items() for name in names}
    for of in ("shown_parameter", "fixed", "between")
)
KEPT = frozenset({*SHOWN_PARAMETER, *FIXED, *_READ["circa"], *_READ["convert"]})
LANGUAGE = re.compile(
    r"lang-[a-z]{2,3}(-[a-z]+)*"
)  # such as lang-de, which shows its first parameter
NUMBER = re.compile(r"[-+\u2212]?[\d.,/]+(e[-+]?\d+)?")


class BadWikitext(ValueError):
    """A page that can't be turned into text in bounded time."""


def without_dropped(wikitext: str) -> str:
    """The page without comments, templates (except those that are shown), arguments, tables, tags and list marks.

    It has the placeholders LINE, GAP and LESS. Raises BadWikitext for more than UNCLOSED or DEEPEST constructs.
    """
    for mark in (LINE, GAP, LESS):
        wikitext = wikitext.replace(mark, "")
    text = _MarkupPass(_without_comments(wikitext)).prose()
    return TABLE.sub("\n|", LIST_MARKS.sub("\n", text))


def restored(text: str) -> str:
    """The text with its placeholders LINE, GAP and LESS replaced."""
    return text.replace(LINE, "\n").replace(GAP, "").replace(LESS, "<")


class _MarkupPass:
    """One pass over the marks of a page, with a stack of the constructs that are open."""

    def __init__(self, text: str) -> None:
        self._text = "\n" + text
        self._stack: list[tuple[str, int, int]] = []  # mark, begin, end
        self._cuts: list[tuple[int, int, str]] = []  # begin, end, placeholder
        self._depth = self._unclosed = 0  # of constructs that are not tags
        self._long = (
            0  # kept templates of several lines; the parser may take their lines for other marks
        )
        self._no_end: set[str] = set()  # raw tags whose end does not follow any more

    def prose(self) -> str:
        at = 0
        # Line breaks matter inside web addresses only. Elsewhere they are not searched for, to have fewer marks.
        while match := (MARK_OR_LINE if self._stack and self._stack[-1][0] == "[" else MARK).search(
            self._text, at
        ):
            at = self._mark(match)
        while self._stack:
            self._give_up()
        parts, at = [], 0
        for begin, end, placeholder in sorted(self._cuts, key=lambda cut: (cut[0], -cut[1])):
            if begin >= at:  # else this cut is inside the one before
                parts += self._text[at:begin], placeholder
                at = end
        return "".join(parts) + self._text[at:]

    def _mark(self, match: re.Match[str]) -> int:
        """Process one mark; return the place from which to search for the next one."""
        mark, (begin, end) = match[0], match.span()
        first, last = mark[0], mark[-1]
        if first == "[" and last == "]" and self._depth < DEEPEST:
            return end  # complete links without marks inside, as nearly all links are
        if first == "<":
            return self._tag(match) if match[2] else self._whole(begin, end, kept=False)
        if first == "{":
            if last == "}":
                return self._whole(begin, end, kept=self._is_kept(begin + 2, end - 2))
            if end - begin > DEEPEST:
                raise BadWikitext(f"{end - begin} braces open at once")
            self._push("{{", begin, end)
        elif first == "}":
            self._close_braces(begin, end)
        elif first == "[":
            end = begin + len(mark[:2])
            self._push(mark[:2], begin, end)
        elif first == "]":
            self._pop("[[" if mark == "]]" else "[")
        else:
            if self._stack and self._stack[-1][0] == "[":  # a web address ends with its line
                self._give_up()
            if last == "|":
                self._push("{|", begin, end)
            elif last == "}" and (opened := self._pop("{|")):
                self._cuts.append((opened[1], end, LINE))
        return end

    def _whole(self, begin: int, end: int, *, kept: bool) -> int:
        """Cut a construct without marks that matter to others; one that has to be looked into is read mark by mark."""
        if self._depth + NESTING > DEEPEST or (kept and self._text.find("{{", begin + 2, end) >= 0):
            return self._mark(SINGLE.match(self._text, begin))
        if not kept:
            self._cuts.append((begin, end, GAP))
        return end

    def _tag(self, match: re.Match[str]) -> int:
        name, (begin, end) = match[2].lower(), match.span()
        closing, alone = bool(match[1]), match[0].endswith("/>")
        if (
            name in RAW_TAGS
            and not closing
            and not alone
            and (closed := self._end_of_raw(name, end))
        ):
            if name in DROPPED_TAGS:
                self._cuts.append((begin, closed, GAP))
            return closed
        if not match[3] or not (
            name in INLINE_TAGS or name in LINE_BREAKS or name in DROPPED_TAGS or name in RAW_TAGS
        ):
            self._cuts.append((begin, begin + 1, LESS))
            return match.end(2)
        opened = self._pop("<" + name) if closing and name in DROPPED_TAGS else None
        self._cuts.append(
            (opened[1] if opened else begin, end, LINE if name in LINE_BREAKS else GAP)
        )
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
        """Close the innermost open `mark`, giving up what is open inside it; None if no such mark is open."""
        for back in range(1, min(len(self._stack), DEEPEST) + 1):
            if self._stack[-back][0] == mark:
                for _ in range(back - 1):
                    self._give_up()
                self._depth -= not mark.startswith("<")
                return self._stack.pop()
        return None

    def _give_up(self) -> None:
        if not self._stack.pop()[0].startswith("<"):  # the mark of a tag has been cut already
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


def is_kept(begin: str) -> bool:
    """Whether a template is shown; `begin` has its first characters, without the braces."""
    name = _name(re.split(r"[|{}]", begin, maxsplit=1)[0])
    return name in KEPT or LANGUAGE.fullmatch(name) is not None


def template_text(name: str, parameters: list[tuple[str | None, str]]) -> str:
    """The text that a reader sees of a template with these (name or None, value) parameters; "" for a dropped one."""
    name, by_place = _name(name), {}
    for key, value in parameters:
        place = str(len(by_place) + 1) if key is None else key.strip()
        if place.isdecimal():
            by_place[int(place)] = value.strip()
    places = [by_place[place] for place in sorted(by_place)]
    if name in SHOWN_PARAMETER or LANGUAGE.fullmatch(name):
        place = SHOWN_PARAMETER.get(name, 1)
        named = [
            value.strip() for key, value in parameters if key and key.strip() in ("text", "quote")
        ]
        return (
            (places[-1] if place < 0 else places[place - 1])
            if len(places) >= abs(place)
            else "".join(named[:1])
        )
    if name in FIXED:
        return FIXED[name]
    if name in _READ["circa"]:
        return " \u2013 ".join(f"c. {year}" for year in places[:2])
    return _measure(places) if name in _READ["convert"] else ""


def _measure(places: list[str]) -> str:
    """The measure before its conversion: "5 to 10 km" of {{cvt|5|to|10|km|mi}}, "5 ft 8 in" of {{cvt|5|ft|8|in|m}}."""
    text, at = "", 0
    while at + 1 < len(places) and NUMBER.fullmatch(places[at]):
        unit = places[at + 1]
        text += places[at] + (BETWEEN.get(unit) or f" {_READ['units'].get(unit, unit)} ")
        at += 2
    return text.strip()


def _name(name: str) -> str:
    return name.replace("_", " ").strip().lower()
