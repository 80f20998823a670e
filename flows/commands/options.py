"""The options that several commands share: each has one name and one meaning everywhere.

What completes a value in a shell reads no more than names, so that a shell does not wait.
"""

from typing import Annotated, Any

import typer

from pipelines import methods, safe_text
from pipelines.errors import LongtailError

PORTS: dict[str, Any] = {"min": 1, "max": 65535}


def profile_names() -> list[str]:
    """The names of profiles, where the command is called in a checkout."""
    from flows import profiles

    return profiles.names()


def subset_names() -> list[str]:
    from pipelines.subsets import read_subsets

    return list(read_subsets())


def lm_names() -> list[str]:
    """The language models of params.yaml; none where it can't be read."""
    from pipelines.params import params_file

    try:
        return list(params_file.read_values().get("lms") or [])
    except LongtailError:
        return []


def method_names() -> list[str]:
    return list(methods.METHODS)


def searcher_names() -> list[str]:
    """The kinds of retrievers that search a corpus."""
    return [kind for kind, index in methods.INDEXES.items() if kind == index]


JSON = typer.Option(
    "--json", help="Print the result as JSON, and nothing else; docs/command-line.md has its keys."
)
OPEN = typer.Option("--open", help="Open it in a browser.")
PROFILE = typer.Option(
    metavar="NAME", help="A profile of conf/profile.", autocompletion=profile_names
)
RETRIEVER = typer.Option(
    metavar="NAME",
    help="bm25, dense (untuned), lsr (tuned by LSR), or hybrid "
    "(bm25 and dense), of the main retriever; of another one dense_NAME, lsr_NAME.",
    autocompletion=searcher_names,
)
SUBSET = typer.Option(
    metavar="NAME",
    help="A sample of PopQA that papers use, such as longtail: only its questions count.",
    autocompletion=subset_names,
)
JsonOption = Annotated[bool, JSON]
OpenOption = Annotated[bool, OPEN]
ProfileOption = Annotated[str | None, PROFILE]
RetrieverOption = Annotated[str | None, RETRIEVER]
SubsetOption = Annotated[str, SUBSET]


def print_json(value: Any) -> None:
    """Print plain values as JSON, the only thing on standard output."""
    print(safe_text.dumps(value))
