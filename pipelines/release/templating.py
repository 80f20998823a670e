"""Fill the templates of a release's texts."""

from pathlib import Path
from typing import Any

import jinja2

from pipelines import safe_text
from pipelines.pages import values

TEMPLATES = Path(__file__).with_name("templates")
# Names of facts in a template, or fields of JSON -> their values.
Facts = dict[str, Any]


def render(template: str, facts: Facts) -> str:
    """A text of a release, which is Markdown or a program and no HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["plain"] = safe_text.markdown
    environment.filters["show"] = values.show
    return environment.get_template(template).render(facts)
