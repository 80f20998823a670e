"""A slice of the questions as one page that needs nothing else: no server, no script, no other file."""

from __future__ import annotations

from pipelines.explorer import one_question, pages, slices
from pipelines.explorer.looked_at import Run
from pipelines.explorer.slices import Slice

FOOTER = "Made by Longtail. An answer is right if it contains a gold answer as written, lower-cased or capitalised "
FOOTER += "(published), or as whole words in any case (words)."


def html(run: Run, chosen: Slice, most: int) -> str:
    """The page, with the slice's first `most` questions; the same slice of the same run is the same bytes."""
    read = one_question.read(run, chosen.set, slices.ids(run, chosen, most))
    shown = pages.of_slice(run, chosen) | {"read": read, "own": run.params.lms, "footer": FOOTER}
    return pages.render("export", css=pages.css(), **shown)
