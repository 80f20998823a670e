"""Reasoning that a language model writes before its answer: where it ends in a text."""

import re
from itertools import chain

MARKS = (  # how reasoning begins and ends
    # DeepSeek R1, Qwen, GLM, MiniMax, Phi; many templates open it themselves
    (r"(?i:<(mm:)?think(ing)?\s*>)", r"(?i:</(mm:)?think(ing)?\s*>)"),
    # EXAONE Deep, Gemini, Marco-o1 and prompts that ask for it
    (r"(?i:<(thoughts?|reason(ing)?|scratchpad)>)", r"(?i:</(thoughts?|reason(ing)?|scratchpad)>)"),
    # Magistral
    (r"\[THINK\]", r"\[/THINK\]"),
    # Kimi
    ("◁think▷", "◁/think▷"),
    # Cohere's Command A
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    # gpt-oss
    (
        r"(<\|start\|>assistant)?<\|channel\|>(analysis|commentary)",
        r"<\|channel\|>final.*?<\|message\|>",
    ),
    # gpt-oss, without its special tokens
    (r"analysis(?=[A-Z])", "assistantfinal"),
)
# marks around the answer that comes after reasoning
AROUND = re.compile(
    r"(?i:</?(answer|response|output)>)|<\|(START|END)_RESPONSE\|>|<\|(return|end)\|>"
)
ANY_MARK = re.compile("|".join(chain.from_iterable(MARKS)))


def split(text: str) -> tuple[str, str]:
    """The reasoning of a text, and what comes after it; all is reasoning that begins and does not
    end.
    """
    if not ANY_MARK.search(text):
        return "", text
    for opening, closing in MARKS:
        begin = re.match(rf"\s*({opening})", text)
        ends = list(re.finditer(closing, text, re.DOTALL))
        start = begin.end() if begin else 0
        # a mark that begins with a letter may be an ordinary word, if nothing began before it
        if ends and (begin or not closing[0].isalpha()):
            reasoning = text[start : ends[-1].start()]
            answer = text[ends[-1].end() :]
            return reasoning, AROUND.sub("", answer)
        if begin:
            return text[start:], ""
    return "", text
