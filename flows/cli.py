"""The longtail command: what people do by hand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from flows import cache
from pipelines import catalogue, disks, methods, neutral, params_file
from pipelines.errors import LongtailError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="From raw Wikidata, Wikipedia and Pile dumps to PopQA, a tuned retriever, and a rule for when to retrieve.",
)
HOME = Path(".longtail/prefect")
REPORT = Path("data/report/index.html")
REPRODUCTION = Path("data/reproduction/reproduction.md")  # of the run at hand; git and DVC leave it alone
PUBLISHED_REPRODUCTION = Path("docs/reproduction.md")
DIFFERENCE = Path(".longtail/difference")
ATTRIBUTION = Path(".longtail/attribution.html")
PORTS = {"min": 1, "max": 65535}
CALLED_FROM = Path.cwd()  # paths on the command line are relative to it; `main` goes to the project's root


class Part(StrEnum):
    refresh = "refresh"
    popqa = "popqa"
    corpus = "corpus"
    retriever = "retriever"
    thresholds = "thresholds"


@app.command()
def run(
    part: Annotated[Part, typer.Argument(help="The part to run, with all that it needs; refresh is everything.")] = (
        Part.refresh
    ),
    profile: Annotated[str | None, typer.Option(help="Compose params.yaml from this profile first.")] = None,
    push: Annotated[bool, typer.Option("--push", help="Send the results to DVC's default remote.")] = False,
) -> None:
    """Bring everything up to date. Runs the stages whose inputs, code or params changed; says where the report is."""
    from flows import graph, workspace

    if profile:
        _compose(profile)
    params_file.load()
    disks.check()
    with workspace.alone():
        stages, changed = graph.read_with_cache(Path.cwd(), print)
        stages = graph.part(stages, graph.PARTS[part])
        changed = [stage.name for stage in stages if stage.name in changed]
        if not changed and not push:
            _show(f"all {len(stages)} stages are up to date; the report: {REPORT}")
            return
        from flows import server

        _show(f"{len(changed)} of {len(stages)} stages changed; starting Prefect's server")
        with server.running(HOME) as url:
            from flows import runs

            try:
                state = runs.run(part, push=push)
            finally:  # an interrupted run too: at its exit Prefect would wait for a server that is gone
                server.flush()
        if not state.is_completed():
            raise LongtailError(state.message)
        closed = f"{url.removesuffix('/api')} is closed; `longtail ui` opens it again"
        _show(f"{state.message} ({_as_called(closed)})")
        _show(f"the report: {REPORT.resolve()}")


@app.command()
def schedule(
    port: Annotated[int, typer.Option(help="Port of Prefect's pages, on 127.0.0.1.", **PORTS)] = 4200,
) -> None:
    """Run what prefect.yaml schedules, until Ctrl-C. Starts Prefect's server, a worker and the schedules here."""
    from flows import schedules

    try:
        schedules.serve(HOME, port)
    except KeyboardInterrupt:
        print("closed")


@app.command()
def status() -> None:
    """Show which stages are up to date, and which run. Of the others, what changed, or what they wait for."""
    from flows import graph, workspace

    params_file.load()  # dvc.yaml takes names from it; DVC's own error would not help
    stages, changed = graph.read(Path.cwd(), beside_a_run=True)
    touched = graph.behind(stages, changed)
    at_work = workspace.LOCK.exists() and not workspace.is_free()
    for stage in stages:
        reasons = changed.get(stage.name)
        if reasons == [graph.RUNNING] and touched.isdisjoint(stage.needs):
            word, detail = "running", graph.progress(Path.cwd(), stage)
        elif reasons and reasons != [graph.RUNNING]:
            missing = any(reason.startswith("deleted data/") for reason in reasons)
            word, detail = "missing" if missing else "changed", "; ".join(reasons[:3])
            detail += f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
            if at_work:
                word, detail = "waiting", f"for the run at work: {detail}"
        elif touched.intersection(stage.needs):
            word, detail = "waiting", f"for {', '.join(name for name in stage.needs if name in touched)}"
        else:
            word, detail = "up to date", ""
        _show(f"{stage.name:32} {word:12} {detail}".rstrip())
    _show(
        f"{len(stages) - len(touched)} of {len(stages)} stages are up to date"
        + _as_called("; `longtail run` does the rest" * bool(touched))
    )


@app.command()
def verify() -> None:
    """Hash all outputs anew. Names those that differ from dvc.lock, as after damage to a disk."""
    from flows import dvc_files
    from flows.verify import faults

    dvc_files.mend(Path.cwd())
    count, lines = faults(Path.cwd(), params_file.load("compute").compute.threads)
    for line in lines:
        _show(line)
    if lines:
        raise LongtailError(f"{len(lines)} are not as in dvc.lock; remove them, and `longtail run` restores them")
    _show(f"{count:,} files are those of dvc.lock")


@app.command()
def profile(
    name: Annotated[str, typer.Argument(help="Name of a file of conf/profile, without its suffix.")],
) -> None:
    """Compose params.yaml from a profile. That is conf/config.yaml with what conf/profile/NAME.yaml changes."""
    _compose(name)
    _show(_as_called(f"wrote params.yaml, profile {name}; `longtail run` works with it"))


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder with data sets and folders of models, wherever below it.")],
    name: Annotated[str | None, typer.Option(help="The profile's name, in place of the folder's.")] = None,
    lsr: Annotated[bool, typer.Option("--lsr", help="Tune the retriever to the language model too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a profile of that name.")] = False,
) -> None:
    """Write a profile for the data and models in a folder. Says what was found, what is missing, and what to run."""
    from flows import init_profile

    for line in init_profile.init(CALLED_FROM / folder, name, lsr=lsr, force=force):
        _show(_as_called(line))


@app.command()
def plan(
    profile: Annotated[str | None, typer.Option(help="Plan for this profile; params.yaml stays as it is.")] = None,
) -> None:
    """Say what a run will take. By params.yaml: weights to download, tokens, hours here, memory, disk, cost."""
    import yaml

    from flows import profiles
    from pipelines.lsr import plan

    values = yaml.safe_load(profiles.compose(profile)) if profile else params_file.read()
    for line in plan.forecast(plan.read(values)):
        _show(line)


RETRIEVERS = (
    "bm25, dense (the main retriever untuned), lsr (tuned, the default if it is), hybrid (bm25 and dense), reranked; "
    "another's: dense_NAME, lsr_NAME and so on."
)
Corpus = StrEnum("Corpus", catalogue.names("documents"))


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many documents.")] = 5,
    corpus: Annotated[Corpus | None, typer.Option(help="Where to look, in place of parts.datastore.")] = None,
    retriever: Annotated[str | None, typer.Option(help=RETRIEVERS)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of each document, as a JSON list.")] = False,
) -> None:
    """Search a corpus. Shows score, title, id and the beginning of the best documents."""
    from dataclasses import asdict
    from shutil import get_terminal_size

    from flows import explore

    params = params_file.load("retrievers", "parts")
    corpus = corpus or params.parts.datastore or next(iter(params.parts.corpora), "")
    hits = explore.search(text, corpus, retriever or _best(params), k)
    if as_json:
        print(neutral.dumps([asdict(hit) for hit in hits]))
        return
    for line in explore.lines(hits, max(30, min(get_terminal_size().columns, 100))):
        _show(line)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="Such as: What is X's occupation? Other questions get a passage.")],
    lm: Annotated[str | None, typer.Option(help="A language model of params.yaml's lms; by default the first.")] = None,
    retriever: Annotated[str | None, typer.Option(help=RETRIEVERS)] = None,
    pair: Annotated[str | None, typer.Option(help="Two answers of thresholds.pairs: TAIL_below_POPULAR.")] = None,
    subject: Annotated[str | None, typer.Option(help="Wikidata id of the subject that is meant, such as Q42.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that was found, as a JSON object.")] = False,
) -> None:
    """Answer a question, and say why. Retrieves only where the subject is below its relation's popularity threshold."""
    from dataclasses import asdict

    from flows import explore
    from pipelines.adaptive import ask

    question = question.encode(errors="replace").decode()  # no tokenizer takes an argument that is no UTF-8
    params = params_file.load("seed", "lm", "lms", "compute", "retriever", "retrievers", "reranker", "answer", "parts")
    if not params.lms:
        raise LongtailError("params.yaml: lms is empty, expected a language model that answers")
    by = pair or methods.short(*explore.index_of(retriever or _best(params), params), params.retrievers)
    asked = ask.ask(question, lm or params.lms[0], by, params, subject=subject, data=Path("data"))
    if as_json:
        print(neutral.dumps(asdict(asked)))
        return
    for line in ask.lines(asked):
        _show(line)


@app.command()
def attribute(
    query: Annotated[str, typer.Argument(help="Id of a language-modelling query of the test split.")],
    retriever: Annotated[str | None, typer.Option(help=RETRIEVERS)] = None,
) -> None:
    """Show what a text owes to memory and to each document. Token by token, with a page."""
    from flows import explore

    for line in explore.attribute(query, retriever or _best(params_file.load("retrievers", "parts")), ATTRIBUTION):
        _show(line)


@app.command()
def report(
    show: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Print where the report is."""
    if not REPORT.is_file():
        raise LongtailError(f"{REPORT}: no such file; `longtail run` writes it")
    print(REPORT.resolve())
    if show:
        typer.launch(REPORT.resolve().as_uri())


@app.command()
def reproduce(
    docs: Annotated[bool, typer.Option("--docs", help="Write docs/reproduction.md, which the project keeps.")] = False,
) -> None:
    """Compare with the papers' numbers. Of results whose set-up is the paper's, says which agree; writes a page."""
    from flows import graph
    from pipelines import shards
    from pipelines.params import Params
    from pipelines.report import comparison, comparison_page, papers

    chosen = params_file.load(*Params.model_fields)
    behind = graph.behind(*graph.read(Path.cwd(), beside_a_run=True)) if chosen.fetch.source != "world" else ()
    published = papers.read()
    held = comparison.Run(Path("data"), chosen, published.setups, finished="analyse" not in behind)
    groups = [(group, [held.compare(number) for number in group.numbers]) for group in published.groups]
    for line in comparison_page.lines(groups):
        _show(line)
    path, prefix = (PUBLISHED_REPRODUCTION, "") if docs else (REPRODUCTION, "../../docs/")
    with shards.atomic(path) as file:
        file.write_text(comparison_page.page(groups, published, chosen.profile, prefix), encoding="utf-8")
    print()
    _show(f"all numbers, and what each of them needs: {path}")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="popqa.parquet, a file in the published format, or its folder.")],
    new: Annotated[Path, typer.Argument(help="The later release, in the same forms.")],
    out: Annotated[Path | None, typer.Option(help="Folder for both files, in place of .longtail/difference.")] = None,
) -> None:
    """Compare two releases of PopQA. Questions added and gone, other answers, popularity moved; as table and page."""
    from pipelines.release.difference import write_difference

    params = params_file.load("compute", "ingest")
    old, new, out = ((CALLED_FROM / path).resolve() for path in (old, new, out or DIFFERENCE.resolve()))
    _check_folder(out)
    for line in write_difference(old, new, out, ingest=params.ingest, threads=params.compute.threads):
        _show(line)
    _show(f"the page: {out / 'index.html'}; the table: difference.parquet beside it")


@app.command()
def release(
    version: Annotated[
        str | None, typer.Option(help="Such as 2.0.0, in place of the one that the changes call for.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for releases, in place of release/.")] = None,
    check: Annotated[Path | None, typer.Option(help="Check this release's files and rows, and write none.")] = None,
) -> None:
    """Write a release, or check one. PopQA and what belongs to it, with card, licences, provenance and checksums."""
    from flows import landing, workspace

    if check:
        _show(landing.check((CALLED_FROM / check).resolve()))
        return
    out = (CALLED_FROM / out).resolve() if out else landing.OUT
    _check_folder(out)
    with workspace.alone():
        _show(landing.land(version, out))


QuestionSet = StrEnum("QuestionSet", catalogue.names("answered"))


@app.command("import-answers")
def import_answers(
    file: Annotated[Path, typer.Argument(help="CSV, TSV or JSON lines: id (or question) and prediction or correct.")],
    dataset: Annotated[QuestionSet, typer.Option(help="Whose questions they answer.")],
    lm: Annotated[str, typer.Option(help="A name for the model that made them, such as opt-13b.")],
    method: Annotated[
        str,
        typer.Option(
            help="closed_book, bm25, dense, lsr, hybrid, reranked, genread, replug, replug_lsr, or dense_NAME."
        ),
    ],
    partial: Annotated[bool, typer.Option("--partial", help="Take the answers whose question both have.")] = False,
) -> None:
    """Bring in answers that were made elsewhere. Thresholds are then tuned for a model that can't run here."""
    from pipelines.answering import import_answers

    local_lms = list(params_file.load("lm").lm)
    path = (CALLED_FROM / file).resolve()
    if not path.is_file():
        raise LongtailError(f"{path}: no such file, expected a table of answers")
    for line in import_answers.import_answers(path, dataset, lm, method, local_lms, Path("data"), partial=partial):
        _show(line)


app.command()(cache.cache)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port of Prefect's pages, on 127.0.0.1.", **PORTS)] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow's pages, on 127.0.0.1.", **PORTS)] = 5000,
) -> None:
    """Serve Prefect's and MLflow's pages, until Ctrl-C. They show all runs so far."""
    import time
    from contextlib import nullcontext

    from flows import server

    server.prepare(HOME)
    up = server.already_up(HOME)  # a schedule's server on this port has the same pages
    prefect = nullcontext(up) if up == f"http://127.0.0.1:{port}/api" else server.start(HOME.resolve(), port)
    with server.mlflow_pages(HOME, mlflow_port) as pages, prefect as url:
        try:
            print(f"Prefect: {url.removesuffix('/api')}\nMLflow:  {pages}\n(Ctrl-C ends both)", flush=True)
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print("closed")


def _best(params: SimpleNamespace) -> str:
    """The main retriever, tuned if the run tunes it; BM25 in a run without retrievers."""
    if not params.retrievers:
        return "bm25"
    return "lsr" if params.retrievers[0] in params.parts.tuned else "dense"


def _show(line: str) -> None:
    """Print a line that may hold text from elsewhere."""
    print(neutral.line(line))


def _as_called(text: str) -> str:
    """`text` with its commands as they were typed: .venv/bin/longtail, where a plain longtail would not be found."""
    typed, found = Path(sys.argv[0]), shutil.which("longtail")
    if typed.name != "longtail" or len(typed.parts) == 1 or (found and (CALLED_FROM / typed).samefile(found)):
        return text
    return re.sub(r"(^ +|`)longtail(?= [a-z])", lambda match: match[1] + shlex.quote(sys.argv[0]), text)


def _check_folder(out: Path) -> None:
    """Raise LongtailError where the folder to write into, or one above it, is a file."""
    if file := next((path for path in (out, *out.parents) if path.is_file()), None):
        raise LongtailError(f"--out {out}: {file} is a file, expected a folder or nothing there; name another")


def _compose(name: str) -> None:
    from flows import profiles

    profiles.write(name, Path("params.yaml"))


def _go_to_root() -> None:
    """Go to the project's root, from wherever below it the command was called."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file() and (folder / "conf/config.yaml").is_file():
            os.chdir(folder)
            return
    raise LongtailError(f"{here}: not inside a Longtail checkout (a folder with dvc.yaml and conf/)")


def main() -> None:
    """Run the command; a user's error is one line and exit code 1."""
    sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: no label breaks a terminal that isn't UTF-8
    try:
        if not {"-h", "--help"} & set(sys.argv[1:]) and sys.argv[1:]:
            _go_to_root()
        app()
    except Exception as error:
        if not (said := str(error) if isinstance(error, LongtailError) else disks.meaning(error)):
            raise
        print(f"error: {_as_called(said)}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        goes_on = _as_called("; `longtail run` goes on from here" * ("run" in sys.argv[1:2]))
        print(f"interrupted{goes_on}", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
