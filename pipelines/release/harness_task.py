"""Write a release's task for lm-evaluation-harness.

lm-eval/popqa.yaml has the prompts and the scoring of Longtail's own answers. It calls
lm-eval/functions.py, which needs nothing of Longtail.
"""

import inspect
import re
from pathlib import Path

from pipelines import draws
from pipelines.language import language, words
from pipelines.lm import language_model
from pipelines.questions import matching
from pipelines.release.templating import Facts, render

FOLDER = "lm-eval"
TASK = "popqa_longtail"
# Functions that the task's functions.py has copies of, and what the copies say otherwise.
COPIED_FUNCTIONS = (
    draws.uniform,
    language_model.up_to,
    matching.substring,
    words._joined,
    words.standing,
    words.fold,
    matching.word,
)
# Patterns of what the copies leave out. A file's name, as words.py, stays.
LEFT_OUT_IN_COPIES = (r"\bwords\.(?!py\b)", ": Language = ENGLISH")


def write_harness_task(folder: Path, params: Facts) -> None:
    """Write both files of the task for lm-evaluation-harness.

    `params` are those of the run that the release is made of.
    """
    spoken = language.read_language(params["language"])
    functions = "\n\n".join(inspect.getsource(function) for function in COPIED_FUNCTIONS)
    for pattern in LEFT_OUT_IN_COPIES:
        functions = re.sub(pattern, "", functions)
    facts = {
        "task": TASK,
        "version": folder.name,
        "answer": params["answer"],
        "seed": params["seed"],
        "demonstration": repr(spoken.prompt.question),
        "alone": repr(words.ALONE.pattern),
        "silent": repr(words.SILENT.pattern),
        "typed_as": repr(words.TYPED_AS),
        "form": repr(spoken.match.form),
        "same": repr(spoken.match.same),
        "functions": functions,
    }

    harness = folder / FOLDER
    harness.mkdir()
    task = render("lm_eval_task.yaml.j2", facts)
    (harness / "popqa.yaml").write_text(task, encoding="utf-8")
    program = render("lm_eval_functions.py.j2", facts)
    (harness / "functions.py").write_text(program, encoding="utf-8")
