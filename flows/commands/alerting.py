"""The command that sets up who hears of scheduled runs."""

from typing import Annotated

import typer

from flows import terminal
from pipelines.errors import LongtailError


def alerts(
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Send alerts to this webhook, or to Prefect's block TYPE/NAME, such as "
            "slack-webhook/ops. Sends a test alert.",
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Send no more alerts.")] = False,
) -> None:
    """Say who hears of scheduled runs that fail, and set it up.

    Alerts are sent of runs of `longtail schedule`, or of the server that PREFECT_API_URL names.
    """
    if to and remove:
        raise LongtailError("--remove: sends no more alerts, expected no --to with it")
    from flows import server

    with server.running(server.HOME):
        from flows import alerts  # imports Prefect, which reads the server's address

        if to:
            alerts.set_up(to)
            terminal.show("a test alert was sent")
        if remove and alerts.remove():
            terminal.show("alerts are removed")
        for line in alerts.describe():
            terminal.show(terminal.as_called(line))
