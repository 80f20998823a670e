"""The `longtail` command: its commands, and an error of each as one line."""

import io
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from flows import surroundings, terminal
from flows.commands import (
    accepting,
    alerting,
    asking,
    comparing,
    entity_links,
    help_examples,
    imports,
    looking,
    publishing,
    rules,
    running,
)
from pipelines import redaction
from pipelines.errors import LongtailError, one_line

Command = Callable[..., Any]
GROUPS: dict[str, tuple[Command, ...]] = {  # what one wants -> the commands for it
    "Run": (
        running.run,
        running.schedule,
        accepting.accept,
        alerting.alerts,
        running.plan,
        running.init,
    ),
    "Look": (looking.status, looking.report, looking.explore, looking.reproduce),
    "Ask": (asking.search, asking.ask),
    "Your own files": (
        entity_links.link,
        rules.thresholds,
        rules.decide,
        comparing.compare,
        imports.imports,
    ),
    "Publish": (publishing.release,),
}
WITHOUT_PROJECT = {"thresholds", "decide", "compare"}  # commands that work in any folder
USAGE_ERROR: Any = typer.BadParameter.__base__  # of the click that typer brings along
INTERRUPTED = 130  # exit code of Ctrl-C, typer's too
COMPLETION = (
    "`longtail COMMAND --help` explains a command. After `longtail --install-completion`, the Tab "
    "key completes commands and options in bash, zsh and fish."
)


class Grouped(typer.core.TyperGroup):
    """Lists the commands by what one wants."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in GROUPS.items():
            rows = []
            for command in commands:
                name = command.__name__
                rows.append((name, self.commands[name].get_short_help_str(80)))
            with formatter.section(title):
                formatter.write_dl(rows)


def print_version(wanted: bool) -> None:
    """Print the version and end, before anything else is looked at."""
    if wanted:
        from importlib.metadata import version

        print(f"longtail {version('longtail')}")
        raise typer.Exit


app = typer.Typer(
    cls=Grouped,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="From raw Wikidata, Wikipedia and Pile dumps to PopQA, a tuned retriever, "
    "and a rule for when to retrieve.",
    epilog=f"{help_examples.epilog('')}\n\n{COMPLETION}",
)


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


for command in itertools.chain(*GROUPS.values()):
    app.command(epilog=help_examples.epilog(command.__name__))(command)


def main() -> None:
    """Run the command.

    A user's error is one line and exit code 1, or 2 if the command line itself is wrong.
    """
    # as standard error: no label breaks a terminal that isn't UTF-8
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    redaction.guard()
    words = sys.argv[1:] or ["--help"]
    try:
        if not words[0].startswith("-") and not {"-h", "--help"} & set(words):
            _go_to_root(needed=words[0] not in WITHOUT_PROJECT)
        raise SystemExit(app(words, prog_name="longtail", standalone_mode=False) or 0)
    except USAGE_ERROR as error:
        _exit(_usage_message(error, words), error.exit_code)
    except Exception as error:
        message = surroundings.explain(error)
        if not message:
            raise
        _exit(message, 1)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        advice = terminal.as_called("; `longtail run` goes on from here")
        print("interrupted" + (advice if words[0] == "run" else ""), file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def _exit(message: str, code: int) -> None:
    print(f"error: {terminal.as_called(message)}", file=sys.stderr)
    raise SystemExit(code) from None


def _go_to_root(needed: bool) -> None:
    """Go to the project's root, from wherever below it the command was called.

    Raises LongtailError if one is needed, and there is none or DVC can't work there.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file() and (folder / "conf/config.yaml").is_file():
            if needed:
                surroundings.check_name(folder)
                surroundings.check_environment(folder)
            os.chdir(folder)
            return
    if needed:
        raise LongtailError(
            f"{here}: not inside a Longtail checkout, which has dvc.yaml and conf/; "
            "cd into one, or git clone Longtail's repository first"
        )


def _usage_message(error: Any, words: list[str]) -> str:
    """What is wrong with a command line, what is allowed, and where to look."""
    problem = one_line(error.format_message()).rstrip(".?").replace("Value error, ", "")
    command = error.ctx.command_path if error.ctx else " ".join(["longtail", *words[:1]])
    end = "?" if "Did you mean" in problem else ";"
    return f"{command}: {problem[:1].lower()}{problem[1:]}{end} `{command} -h` lists what it takes"


if __name__ == "__main__":
    main()
