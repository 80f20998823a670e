"""The command that sets up who hears of scheduled runs."""

from typing import Annotated

import typer

from flows import terminal


def alerts(
    to: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Send alerts to this webhook, or to Prefect's block TYPE/NAME, such as "
            "slack-webhook/ops. Sends a test alert first.",
        ),
    ],
) -> None:
    """Set up who hears of scheduled runs that need a person.

    conf/alerts.yaml says how. Alerts are sent of runs of `longtail schedule`, or of the server that
    PREFECT_API_URL names.
    """
    from flows import server

    with server.running(server.HOME):
        from flows import alerts  # imports Prefect, which reads the server's address

        alerts.set_up(to)
    terminal.show("a test alert was sent, and alerts go there from now on")
