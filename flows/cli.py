"""The longtail command: what people do by hand."""

import itertools
import os
import re
import sys
from pathlib import Path
from typing import Any

import typer

from flows import anywhere, cache, landing, profiles, results, running, searching, terminal
from pipelines.errors import LongtailError
from pipelines.storage import disks

GROUPS = {  # what one wants -> the commands for it
    "Run": (running.run, running.schedule, running.plan, running.init),
    "Look": (running.status, results.report, results.explore, results.reproduce),
    "Ask": (searching.search, searching.ask),
    "Your own files": (anywhere.thresholds, anywhere.decide, anywhere.compare, anywhere.imports),
    "Publish": (landing.release,),
}
BELOW = {
    running.status: cache.cache,
    landing.release: landing.diff,
}  # command -> the command below it
KINDS = {
    "integer": "a whole number",
    "number": "a number",
}  # as pydantic calls them -> in the user's words
USAGE_ERROR = typer.BadParameter.__base__  # of the click that typer brings along
ANYWHERE = {"thresholds", "decide", "compare"}  # need no project


class Grouped(typer.core.TyperGroup):
    """Lists the commands by what one wants."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:
        for title, commands in GROUPS.items():
            names = [command.__name__ for command in commands]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(80)) for name in names]
                )


app = typer.Typer(
    cls=Grouped,
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
        kept = "not inside a Longtail checkout, which has dvc.yaml and conf/"
        raise LongtailError(
            f"{here}: {kept}; cd into one, or git clone Longtail's repository first"
        )


def _wrong_usage(error: Any, words: list[str]) -> str:
    """What is wrong with a command line: the option or argument, what was given, what is allowed, and where to look."""
    said = " ".join(error.format_message().split()).rstrip(".?").replace("Value error, ", "")
    kind = rf"Input should be a valid ({'|'.join(KINDS)})\b.*"
    said = re.sub(kind, lambda match: f"expected {KINDS[match[1]]}", said)
    context, parts = error.ctx, [part for word in words for part in word.split("=", 1)]
    options = getattr(getattr(error, "param", None), "opts", ())
    given = next((value for name, value in itertools.pairwise(parts) if name in options), "")
    said += f", it is {given}" * bool(given and given not in said)
    if context and any(param.name == "profile" for param in context.command.params):
        named = (word for before, word in itertools.pairwise(words) if before != "--profile")
        profile = next((word for word in named if word in profiles.names()), None)
        said += f"; a profile is named as --profile {profile}" * bool(profile)
    command = context.command_path if context else " ".join(["longtail", *words[:1]])
    end = "?" if "Did you mean" in said else ";"
    return f"{command}: {said[:1].lower()}{said[1:]}{end} `{command} -h` lists what it takes"


def _meaning(error: Exception) -> str | None:
    """One line for an error that a user can mend; None for any other, whose traceback says more."""
    if isinstance(error, ModuleNotFoundError) and (name := str(error.name).split(".")[0]) not in (
        "flows",
        "pipelines",
    ):
        return f"this needs {name}, which comes with the whole pipeline: pip install 'longtail[pipeline]'"
    if isinstance(error, IsADirectoryError):
        where = os.fsdecode(error.filename2 or error.filename).removeprefix(f"{Path.cwd()}/")
        return f"{where}: is a directory; name a file, not a folder"
    return str(error) if isinstance(error, LongtailError) else disks.meaning(error)


def main() -> None:
    """Run the command; a user's error is one line and exit code 1, or 2 if the command line itself is wrong."""
    sys.stdout.reconfigure(
        errors="backslashreplace"
    )  # as standard error: no label breaks a terminal that isn't UTF-8
    words = sys.argv[1:] or ["--help"]
    try:
        if not {"-h", "--help"} & set(words):
            _go_to_root(needed=words[0] not in ANYWHERE)
        raise SystemExit(app(words, prog_name="longtail", standalone_mode=False) or 0)
    except USAGE_ERROR as error:
        print(f"error: {terminal.as_called(_wrong_usage(error, words))}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        if not (said := _meaning(error)):
            raise
        print(f"error: {terminal.as_called(said)}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != 130:  # typer's for Ctrl-C
            raise
        goes_on = terminal.as_called(
            "; `longtail run` goes on from here" * ("run" in sys.argv[1:2])
        )
        print(f"interrupted{goes_on}", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
