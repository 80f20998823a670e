"""The reference of params.yaml says what params.py allows and the profiles hold."""

from __future__ import annotations

import params_reference


def test_the_page_is_of_the_present_params(root):
    written = (root / "docs/params.md").read_text(encoding="utf-8")
    assert written == params_reference.page(), "run `python tests/params_reference.py`"


def test_every_key_has_a_row():
    from pipelines.params import LSR, Params

    rows = {line.split("`")[1] for line in params_reference.page().splitlines() if line.startswith("| `")}
    headings = {line[3:] for line in params_reference.page().splitlines() if line.startswith("## ")}
    assert set(LSR.model_fields) <= rows
    assert set(Params.model_fields) <= rows | {heading.split(".")[0] for heading in headings}
    assert "lm.<name>.training.phases[]" in headings
