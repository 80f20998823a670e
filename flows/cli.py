"""The longtail command: what people do by hand."""

from __future__ import annotations

import itertools
import os
import pkgutil
import sys
from pathlib import Path

import click
import typer

from flows import anywhere, cache, landing, results, running, searching, terminal
from pipelines import all_studies
from pipelines.errors import LongtailError
from pipelines.storage import disks

OF_STUDIES = tuple(pkgutil.resolve_name(command) for command in all_studies.study_commands())
GROUPS = {  # what one wants -> the commands for it
    "Run": (running.run, running.schedule, running.plan, running.init),
    "Look": (running.status, results.report, results.explore, results.reproduce, *OF_STUDIES),
    "Ask": (searching.search, searching.ask),
    "Your own files": (anywhere.thresholds, anywhere.decide, anywhere.compare, anywhere.imports),
    "Publish": (landing.release,),
}
BELOW = {running.status: cache.cache, landing.release: landing.diff}  # command -> the command below it
ANYWHERE = {"thresholds", "decide", "compare", *(command.__name__ for command in OF_STUDIES)}  # need no project


class Grouped(typer.core.TyperGroup):
    """Lists the commands by what one wants."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            names = [command.__name__ for command in commands]
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(80)) for name in names])


app = typer.Typer(
    cls=Grouped,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="From raw Wikidata, Wikipedia and Pile dumps to PopQA, a tuned retriever, and a rule for when to retrieve.",
)
for command in itertools.chain(*GROUPS.values()):
    if command in BELOW:
        group = typer.Typer(callback=command, invoke_without_command=True, rich_markup_mode=None)
        group.command()(BELOW[command])
        app.add_typer(group, name=command.__name__)
    else:
        app.command()(command)


def _go_to_root(needed: bool) -> None:
    """Go to the project's root, from wherever below it the command was called; LongtailError if there is no project."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file() and (folder / "conf/config.yaml").is_file():
            os.chdir(folder)
            return
    if needed:
        raise LongtailError(f"{here}: not inside a Longtail checkout (a folder with dvc.yaml and conf/)")


def main() -> None:
    """Run the command; a user's error is one line and exit code 1."""
    sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: no label breaks a terminal that isn't UTF-8
    try:
        if not {"-h", "--help"} & set(sys.argv[1:]) and sys.argv[1:]:
            _go_to_root(needed=sys.argv[1] not in ANYWHERE)
        app()
    except Exception as error:
        if not (said := str(error) if isinstance(error, LongtailError) else disks.meaning(error)):
            raise
        print(f"error: {terminal.as_called(said)}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != 130:  # typer's for Ctrl-C
            raise
        goes_on = terminal.as_called("; `longtail run` goes on from here" * ("run" in sys.argv[1:2]))
        print(f"interrupted{goes_on}", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
