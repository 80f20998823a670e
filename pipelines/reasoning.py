"""Reasoning that a language model writes before its answer: where it ends in a text."""

import re

MARKS = (  # how reasoning begins and ends
    # DeepSeek R1, Qwen, GLM, MiniMax, Phi; many templates open it themselves
    (r"(?i:<(mm:)?think(ing)?\s*>)", r"(?i:</(mm:)?think(ing)?\s*>)"),
    # EXAONE Deep, Gemini, Marco-o1 and prompts that ask for it
    (r"(?i:<(thoughts?|reason(ing)?|scratchpad)>)", r"(?i:</(thoughts?|reason(ing)?|scratchpad)>)"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere's Command A
    (
        r"(<\|start\|>assistant)?<\|channel\|>(analysis|commentary)",
        r"<\|channel\|>final.*?<\|message\|>",
    ),  # gpt-oss
    (r"analysis(?=[A-Z])", "assistantfinal"),  # gpt-oss, without its special tokens
)
# of what comes after it
AROUND = re.compile(
    r"(?i:</?(answer|response|output)>)|<\|(START|END)_RESPONSE\|>|<\|(return|end)\|>"
)
ANY = re.compile("|".join(mark for marks in MARKS for mark in marks))


def split(text: str) -> tuple[str, str]:
    """The reasoning of a text, and what comes after it; all is reasoning that begins and does not end."""
    for opening, closing in MARKS if ANY.search(text) else ():
        begun = re.match(rf"\s*({opening})", text)
        ends = list(re.finditer(closing, text, re.DOTALL))
        if ends and (begun or not closing[0].isalpha()):
            return text[begun.end() if begun else 0 : ends[-1].start()], AROUND.sub(
                "", text[ends[-1].end() :]
            )
        if begun:
            return text[begun.end() :], ""
    return "", text
