"""A slice of the questions as one page that needs nothing else: no server, no other file.

What a question shows when it is opened is nearly the same markup for all, so it lies in the page compressed, and a
script lays it out on demand. Questions and both answers stand in the page as they are.
"""

from __future__ import annotations

import base64
import gzip
import json

from pipelines.explorer import one_question, pages, slices
from pipelines.explorer.looked_at import Run
from pipelines.explorer.slices import Slice

FOOTER = "Made by Longtail. An answer is right if it contains a gold answer as written, lower-cased or capitalised "
FOOTER += "(published), or as whole words in any case (words)."


def html(run: Run, chosen: Slice, most: int) -> str:
    """The page, with the slice's first `most` questions; the same slice of the same run is the same bytes."""
    read, own = one_question.read_answers_to(run, chosen.set, slices.ids(run, chosen, most)), run.params.lms
    details = [
        pages.render("details", question=question, own=own, chosen=chosen, at=f"q{i}-")
        for i, question in enumerate(read, start=1)
    ]
    packed = base64.b64encode(gzip.compress(json.dumps(details).encode(), mtime=0)).decode()
    script = (pages.TEMPLATES / "export.js").read_text(encoding="utf-8")
    shown = pages.of_slice(run, chosen) | {"read": read, "footer": FOOTER, "details": packed, "script": script}
    return pages.render("export", css=pages.css(), **shown)
