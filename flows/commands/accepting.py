"""The command that accepts what the gate stopped."""

from pathlib import Path
from typing import Annotated

import typer

from flows import terminal
from flows.parts import Part
from pipelines.errors import LongtailError
from pipelines.params import params_file


def accept(
    names: Annotated[
        list[str], typer.Argument(metavar="EXPECTATION...", help="Their names, as the gate says.")
    ],
    because: Annotated[str, typer.Option(metavar="REASON", help="Why the values are right.")],
    part: Annotated[Part, typer.Option(help="The part that was run.")] = Part.refresh,
) -> None:
    """Accept values that stopped the last run, and are not as expected.

    conf/accepted.yaml keeps the values, the reason and who accepted them. The next `longtail run`
    of the month lets them through, or better ones.
    """
    from flows import data_branch, gate, graph
    from pipelines.check import acceptances

    if not because.strip():
        raise LongtailError("--because: expected a reason, which the tag of the month shows")
    params = params_file.load_params()
    month = params.popularity.month
    stages, _ = graph.read_graph(Path.cwd(), beside_a_run=True)
    stages = graph.part(stages, part)
    judged = gate.examine(params.profile, part, month, stages)

    stopping = {failure.key.expectation for failure in judged.stopping}
    others = [name for name in names if name not in stopping]
    if others:
        stops = ", ".join(sorted(stopping)) or "nothing"
        raise LongtailError(f"accept: {', '.join(others)}: does not stop {month}; {stops} does")
    unmet = [failure for failure in judged.stopping if failure.key.expectation in names]
    acceptances.accept(unmet, month, because.strip(), data_branch.user())
    for failure in unmet:
        terminal.show(f"accepted for {month}: {failure}")
    wrote = f"{acceptances.FILE} is written; `longtail run` lets it through"
    terminal.show(terminal.as_called(wrote))
