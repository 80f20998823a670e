"""The command that accepts what the gate stopped."""

from typing import Annotated

import typer

from flows import terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file


def accept(
    names: Annotated[
        list[str], typer.Argument(metavar="EXPECTATION...", help="Their names, as the gate says.")
    ],
    because: Annotated[str, typer.Option(metavar="REASON", help="Why the month is right.")],
) -> None:
    """Accept that expectations do not hold in this month.

    The month is that of params.yaml. conf/accepted.yaml keeps the reason, and the next `longtail
    run` lets the month through.
    """
    from pipelines.check import acceptances, expectations

    known = expectations.read_expectations()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LongtailError(
            f"accept: {', '.join(unknown)}: no such expectation in {expectations.FILE}, "
            f"expected one of {', '.join(known)}"
        )
    if not because.strip():
        raise LongtailError("--because: expected a reason, which the release of the month shows")

    month = params_file.load_params().popularity.month
    acceptances.accept(names, month, because.strip(), acceptances.FILE)
    wrote = f"accepted for {month}: {', '.join(names)}, in {acceptances.FILE}"
    terminal.show(terminal.as_called(f"{wrote}; `longtail run` lets it through"))
