"""The options that several commands share: each has one name and one meaning everywhere."""

from typing import Annotated, Any

import typer

from pipelines import safe_text

PORTS: dict[str, Any] = {"min": 1, "max": 65535}

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as JSON, and nothing else; docs/command-line.md has its keys.",
    ),
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open it in a browser.")]
ProfileOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="A profile of conf/profile.")
]
RetrieverOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="bm25, dense (untuned), lsr (tuned by LSR), or hybrid "
        "(bm25 and dense), of the main retriever; of another one dense_NAME, lsr_NAME.",
    ),
]
SubsetOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="A sample of PopQA that papers use, such as longtail: only its questions count.",
    ),
]


def print_json(value: Any) -> None:
    """Print plain values as JSON, the only thing on standard output."""
    print(safe_text.dumps(value))
