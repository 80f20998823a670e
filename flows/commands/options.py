"""The options that several commands share: each has one name and one meaning everywhere."""

from typing import Annotated, Any

import typer

from pipelines import safe_text

JSON = typer.Option(
    "--json", help="Print the result as JSON, and nothing else; docs/command-line.md has its keys."
)
OPEN = typer.Option("--open", help="Open it in a browser.")
JsonOption = Annotated[bool, JSON]
OpenOption = Annotated[bool, OPEN]


def print_json(value: Any) -> None:
    """Print plain values as JSON, which has no NaN and no infinity.

    The only thing on standard output.
    """
    print(safe_text.dumps(value))
