"""Write a release's task for lm-evaluation-harness: PopQA with the prompts and the scoring of Longtail's own answers.

lm-eval/popqa.yaml is the task. lm-eval/functions.py has what it calls, and needs nothing of Longtail.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines import draws
from pipelines.language import language, words
from pipelines.lm import language_model
from pipelines.questions import matching
from pipelines.release import card

FOLDER = "lm-eval"
TASK = "popqa_longtail"
COPIED = (
    draws.uniform, language_model.up_to, matching.substring, words._joined, words.standing, matching._fold,
    matching.word,
)  # fmt: skip
AS_COPIED = {"words.": "", ": Language = ENGLISH": ""}  # what the copies say otherwise


def write_harness_task(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write both files below a release's folder; `settings` are the params of the run that it is made of."""
    facts = {"task": TASK, "version": folder.name, "answer": settings["answer"], "seed": settings["seed"]}
    spoken = language.read_language(settings.get("language", "en"))
    facts |= {"demonstration": repr(spoken.prompt.question), "alone": repr(words.ALONE.pattern)}
    facts |= {"form": repr(spoken.match.form), "same": repr(spoken.match.same)}
    functions = "\n\n".join(map(inspect.getsource, COPIED))
    for written, copied in AS_COPIED.items():
        functions = functions.replace(written, copied)
    facts["functions"] = functions
    (folder / FOLDER).mkdir()
    for template, name in (("lm_eval_task.yaml.j2", "popqa.yaml"), ("lm_eval_functions.py.j2", "functions.py")):
        (folder / FOLDER / name).write_text(card.render(template, facts), encoding="utf-8")
