"""What a language model writes before its answer: reasoning, who speaks, a sentence of courtesy."""

import re
from itertools import chain
from typing import NamedTuple

MARKS = (  # how reasoning begins and ends
    # DeepSeek R1, Qwen, GLM, MiniMax, Phi, Seed-OSS; many templates open it themselves
    (r"(?i:<(\w+:)?think(ing)?\s*>)", r"(?i:</(\w+:)?think(ing)?\s*>)"),
    # EXAONE Deep, Gemini, Marco-o1 and prompts that ask for it
    (r"(?i:<(thoughts?|reason(ing)?|scratchpad)>)", r"(?i:</(thoughts?|reason(ing)?|scratchpad)>)"),
    # Magistral
    (r"\[THINK\]", r"\[/THINK\]"),
    # Kimi
    ("◁think▷", "◁/think▷"),
    # Cohere's Command A
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    # OpenThinker, Sky-T1
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    # Apertus
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    # Gemma 4
    (r"<\|channel>thought", r"<channel\|>"),
    # gpt-oss
    (
        r"(<\|start\|>assistant)?<\|channel\|>(analysis|commentary)",
        r"<\|channel\|>final.*?<\|message\|>",
    ),
    # gpt-oss, without its special tokens
    (r"analysis(?=[A-Z])", "assistantfinal"),
    # Apriel
    ("Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]"),
    # Granite
    (r"Here(?:'s| is) my thought process:", r"Here(?:'s| is) my response:"),
)
# marks around the answer that comes after reasoning
AROUND = re.compile(
    r"(?i:</?(answer|response|output)>)|<\|(START|END)_RESPONSE\|>|<\|(return|end)\|>"
    r"|<\|(begin|end)_of_solution\|>|\[END FINAL RESPONSE\]"
)
# A mark of a chat template, such as <|im_start|>, <start_of_turn>, <answer>, [/INST].
_MARK = r"<[|\w/]+>|\[/?[A-Z]+\]"
_AROUND_LEAD = rf"(?:{_MARK}|[\s*#>`_=-])*"
# A line before the answer: it names who speaks or what follows, has no word, or ends in a colon.
LEAD = re.compile(
    rf"{_AROUND_LEAD}(assistant|(final )?answer|response|output|(?<=>)model)?{_AROUND_LEAD}"
    r"|.*[:\uff1a][\s*_`]*",
    re.IGNORECASE,
)
LONGEST_LEAD = 200  # characters
LINE_BEFORE_OTHERS = re.compile(rf"\s*(\S.{{0,{LONGEST_LEAD}}})\n(?=\s*\S)")
CUT_OFF = "it reasons; that is cut off its answers, and counted (lm_reasoned)"
ANY_MARK = re.compile("|".join(chain.from_iterable(MARKS)))


class Span(NamedTuple):
    """Where reasoning stands in a text, in characters."""

    begins: int  # after the mark that opens it
    ends: int  # before the mark that closes it
    answer: int  # where the answer begins; the text's length where the reasoning does not end


def split(text: str) -> tuple[str, str]:
    """The reasoning of a text, and what comes after it; all is reasoning that begins and does not
    end.
    """
    span = find(text)
    if span is None:
        return "", text
    answer = AROUND.sub("", text[span.answer :])
    return text[span.begins : span.ends], answer


def is_lead(line: str) -> bool:
    """Whether a line is no answer (LEAD)."""
    return len(line) <= LONGEST_LEAD and LEAD.fullmatch(line) is not None


def after_leads(text: str) -> int:
    """The character at which the answer begins, after lines that are none (LEAD).

    The last line of a text is never taken for one of these.
    """
    start = 0
    line = LINE_BEFORE_OTHERS.match(text)
    while line and is_lead(line[1]):
        start = line.end()
        line = LINE_BEFORE_OTHERS.match(text, start)
    return start


def find(text: str) -> Span | None:
    """Where a text reasons before it answers; None where it does not."""
    if not ANY_MARK.search(text):
        return None
    for opening, closing in MARKS:
        begin = re.match(rf"\s*({opening})", text)
        ends = list(re.finditer(closing, text, re.DOTALL))
        start = begin.end() if begin else 0
        # a mark that begins with a letter may be an ordinary word, if nothing began before it
        if ends and (begin or not closing[0].isalpha()):
            # a later mark that closes nothing is named by the answer
            end = ends[0]
            for later in ends[1:]:
                if re.search(opening, text[end.end() : later.start()]):
                    end = later
            return Span(start, end.start(), end.end())
        if begin:
            return Span(start, len(text), len(text))
    return None


def begun_by(prompt: str) -> str:
    """The mark by which a prompt itself begins the reasoning, with the white space after it."""
    for opening, _ in MARKS:
        mark = re.search(rf"({opening})\s*$", prompt)
        if mark:
            return mark[0]
    return ""


def is_ended_by(prompt: str) -> bool:
    """Whether a prompt ends with a mark after which a model answers."""
    return any(re.search(rf"({closing})\s*$", prompt) for _, closing in MARKS)
