"""The longtail command, used wrongly: one line that says what to do, and an exit code that is not
0.
"""

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import webbrowser
from dataclasses import fields
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

import json_keys
import psutil
import pytest
import quick_project
import typer
import yaml
from waiting import PATIENCE, until

from flows import cli, graph, schedules, server, workspace
from flows.commands import help_examples, running
from pipelines.adaptive.ask import AskedQuestion
from pipelines.plan import speed
from pipelines.work.run_log import FLOW

MLFLOW = """
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
address = "127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(address, SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def longtail(tmp_path, monkeypatch, root, call):
    """The command in a checkout in which nothing ran yet."""
    shutil.copytree(root / "conf", tmp_path / "conf")
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(root / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return call


def test_a_part_that_makes_no_report_names_none(longtail, tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "read_with_cache", lambda folder, say: ([], set()))
    assert "report" not in longtail("run")[1], "there is none yet"
    (tmp_path / "data/report").mkdir(parents=True)
    (tmp_path / "data/report/index.html").touch()
    assert [part for part in running.Part if "report" in longtail("run", part)[1]] == ["refresh"]


def test_a_page_that_no_browser_opens_is_named(longtail, tmp_path, monkeypatch):
    report = tmp_path / "data/report/index.html"
    report.parent.mkdir(parents=True)
    report.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(webbrowser, "_tryorder", [])
    _, said, _ = longtail("report", "--open")
    assert said.endswith(f"no browser was found; open {report.as_uri()} in one\n")


def test_help_lists_every_command_once_under_what_one_wants(longtail):
    code, said, _ = longtail("--help")
    assert code == 0
    named = [
        name
        for commands in cli.GROUPS.values()
        for command in commands
        for name in [command.__name__]
    ]
    listed = re.findall(r"^  (\w+) +[A-Z].+\.$", said.partition("\nRun:\n")[2], re.M)
    assert listed == named, "a whole sentence in one line"
    assert [f"\n{title}:\n" in said for title in cli.GROUPS] == [True] * 5


def commands_of(group, name=""):
    """Each command and subcommand with its name; "" is `longtail` alone."""
    yield name, group
    for subname, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, f"{name} {subname}".strip())


def test_every_help_ends_with_examples_that_parse(longtail):
    commands = dict(commands_of(typer.main.get_command(cli.app)))
    assert commands.keys() == help_examples.EXAMPLES.keys()
    for name, command in commands.items():
        said = longtail(*name.split(), "--help")[1]
        assert len(help_examples.EXAMPLES[name]) > 0
        for example in help_examples.EXAMPLES[name]:
            assert f"\n    {example}\n" in said
            program, *words = shlex.split(example.partition(" < ")[0])
            assert program == "longtail"
            assert words[: len(name.split())] == name.split()
            command.make_context(name, words[len(name.split()) :])


@pytest.mark.parametrize(
    ("typed", "completed"), [("longtail st", {"status"}), ("longtail run c", {"corpus"})]
)
def test_a_shell_completes_names(longtail, tmp_path, monkeypatch, typed, completed):
    monkeypatch.chdir(tmp_path / "conf")  # below the project's root
    monkeypatch.setenv("_LONGTAIL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    code, said, error = longtail()
    assert (code, error) == (0, "")
    assert set(said.split()) == completed


def test_the_version_needs_no_project(longtail, root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path.parent)
    assert longtail("--version") == (0, f"longtail {version('longtail')}\n", "")


def test_ask_prints_the_documented_keys(root):
    assert {field.name for field in fields(AskedQuestion)} == json_keys.documented(root, "ask")


def test_plan_takes_a_profile_and_leaves_params_yaml(longtail, root, tmp_path, monkeypatch):
    quick_project.dvc_init(tmp_path)
    monkeypatch.setattr(speed, "matrix_products", lambda threads, half: 1e9)
    before = (tmp_path / "params.yaml").read_bytes()
    assert longtail("plan", "--profile", "wikipedia")[1].startswith("profile wikipedia, on this ")
    code, said, error = longtail("plan", "--json")
    assert (code, error) == (0, "")
    plan = json.loads(said, parse_constant=pytest.fail)
    assert plan["profile"] == "sample"
    assert plan["documents"].keys() == {"wikipedia", "pile"}
    assert plan["space"].keys() >= {"wikidata", "embeddings"}
    plan["documents"] = plan["space"] = {}
    assert set(json_keys.keys_of(plan)) == json_keys.documented(root, "plan")
    assert plan["hours"] == sum(work["hours"] or 0 for work in plan["work"])
    assert (tmp_path / "params.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "named"),
    {
        "release --out params.yaml": "--out {here}/params.yaml: {here}/params.yaml is a file",
        "release --out params.yaml/page": "--out {here}/params.yaml/page: {here}/params.yaml is",
        "imports none.csv --dataset=popqa --lm=x --method=bm25": "{here}/none.csv: no such file",
        "report": "data/report/index.html: no such file; `longtail run` writes it",
        "search Velm --retriever bm25": "data/index/bm25/wikipedia: no such index; `longtail run`",
        "init --profile mine": "no profile 'mine' in conf/profile",
        "init mine": "{here}/mine: not a folder",
        "init params.yaml": "{here}/params.yaml: not a folder, expected one with ",
        "init mine --profile sample": "init: expected a folder, or --profile NAME and no folder",
        "imports conf --dataset=popqa --lm=x --method=bm25": "{here}/conf: a folder, expected predictions",
        "decide conf params.yaml": "conf: is a directory; name a file, not a folder",
        "imports params.yaml": "imports params.yaml: expected --dataset, --lm and --method with it",
    }.items(),
)
def test_what_is_not_there_or_in_the_way_is_named(longtail, tmp_path, words, named):
    code, said, error = longtail(*words.split())
    assert (code, said) == (1, "")
    assert error.startswith(f"error: {named.format(here=tmp_path)}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    {
        "runn": "longtail: no such command 'runn'. Did you mean 'run'? `longtail -h` lists what it takes",
        "run all": "longtail run: invalid value for 'part': 'all' is not one of 'refresh', 'popqa', 'corpus', ",
        "plan laptop": "extra argument(s) (laptop); `longtail plan -h` lists what it takes",
        "run --profile": "longtail run: option '--profile' requires an argument; `longtail run -h` lists",
        "status --al": "longtail status: no such option: --al (Possible options: --all, ",
        "schedule --port=99999": "longtail schedule: invalid value for '--port': ",
        "search x -k many": "longtail search: invalid value for '-k': ",
        "decide": "longtail decide: missing argument 'rule'; `longtail decide -h` lists",
        "imports x --dataset=pop": "'--dataset': 'pop' is not one of 'entityquestions', 'popqa', 'mmlu', 'nq', 'triviaqa'; ",
    }.items(),
)
def test_a_wrong_command_line_is_one_line(longtail, words, said):
    code, out, error = longtail(*words.split())
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("error: longtail")
    assert said in error
    assert "Value error" not in error


def test_status_fits_the_longest_name(longtail, root, monkeypatch):
    name = "answer_replug_lsr@entityquestions-tiny-dense"
    stages = [graph.Stage("code", (), None), graph.Stage(name, (), None)]
    stages.append(graph.Stage("report", (name,), None))
    monkeypatch.setattr(
        graph,
        "read_graph",
        lambda root, beside_a_run: (stages, {name: [graph.Reason("modified", "params.yaml")]}),
    )
    lines = longtail("status")[1].splitlines()
    assert len(name) == 44
    assert lines == [
        f"{name}  changed     modified params.yaml",
        f"{'report':44}  waiting     for {name}",
        "1 of 3 stages are up to date; `longtail run` does the rest",
    ]
    assert longtail("status", "--all")[1].splitlines() == [f"{'code':44}  up to date", *lines]
    status = json.loads(longtail("status", "--json")[1])
    assert set(json_keys.keys_of(status)) == json_keys.documented(root, "status")
    assert (status["total"], status["up_to_date"]) == (3, 1)
    report = {"stage": "report", "state": "waiting", "detail": f"for {name}"}
    assert status["stages"][1:] == [report], "and not `code`, as without --all"


def test_the_untuned_retriever_is_the_default(longtail, tmp_path):
    values = yaml.safe_load((tmp_path / "params.yaml").read_text())
    assert "data/index/lsr/dense/wikipedia: no such index" in longtail("search", "Velm")[2]
    values["parts"]["tuned"], values["ways"], values["thresholds"]["pairs"] = (
        [],
        ["closed_book", "dense"],
        [],
    )
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    assert "data/index/dense/dense/wikipedia: no such index" in longtail("search", "Velm")[2]
    (tmp_path / "params.yaml").unlink()
    assert longtail("status") == (
        1,
        "",
        "error: params.yaml: no such file; `longtail init --profile sample` writes one\n",
    )


def test_init_writes_a_profile(longtail, tmp_path, monkeypatch):
    """A command that is printed runs as it stands."""
    for folder in ("mine", ".venv/bin", "my env/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "longtail").touch(mode=0o755)
    (tmp_path / "mine/psgs_w100.tsv").write_text("id\ttext\ttitle\n1\tA harbour.\tVelm\n")
    for typed, path, printed in (
        (".venv/bin/longtail", "/usr/bin", ".venv/bin/longtail"),
        (f"{tmp_path}/my env/bin/longtail", "/usr/bin", f"'{tmp_path}/my env/bin/longtail'"),
        # as a shell that looked it up says it
        (f"{tmp_path}/.venv/bin/longtail", f"{tmp_path}/.venv/bin", "longtail"),
        (f"{tmp_path}/flows/cli.py", "/usr/bin", "longtail"),
    ):
        monkeypatch.setenv("PATH", path)
        code, said, error = longtail("init", "mine", "--force", command=typed)
        assert (code, error) == (0, "")
        assert said.splitlines()[-2] == f"  {printed} run --profile mine"
        assert longtail("report", command=typed)[2].endswith(f"; `{printed} run` writes it\n")
    assert longtail("init", "--profile", "mine")[0] == 0


def test_explore_all_shows_the_pages_of_a_schedule(longtail, tmp_path, root):
    """MLflow and Prefect are played: they say by a file that they are well.

    SIGTERM ends the command as Ctrl-C does.
    """
    for file, text in (("played/mlflow.py", MLFLOW), ("health", ""), ("api/health", "")):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as prefect:
        threading.Thread(target=prefect.serve_forever, daemon=True).start()
        note = tmp_path / server.HOME / "server.json"
        note.parent.mkdir(parents=True)
        url = f"http://127.0.0.1:{prefect.server_port}/api"
        note.write_text(json.dumps({"url": url, "home": str(note.parent)}))
        page = "/questions?method=bm25&cell=both"
        command = [sys.executable, "-m", "flows.cli", "explore", "--all", page]
        child = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path / 'played'}:{root}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        lines = [child.stdout.readline() for _ in range(4)]
        assert re.fullmatch(r"explorer: +http://\S+/questions\?.*cell=both\n", lines[0])
        assert lines[1::2] == [
            f"Prefect:  http://127.0.0.1:{prefect.server_port}/runs\n",
            "(Ctrl-C ends it)\n",
        ]
        started = psutil.Process(child.pid).children(recursive=True)
        assert len(started) > 0
        child.send_signal(signal.SIGTERM)
        assert child.communicate(timeout=PATIENCE)[0] == "closed\n"
        assert child.returncode == 0
        assert [process for process in started if workspace._runs(process)] == []
        prefect.shutdown()


def test_sigterm_ends_schedules_as_ctrl_c_does(longtail, monkeypatch):
    """What `serve` started ends with its blocks."""
    monkeypatch.setattr(schedules, "serve", lambda *_: signal.raise_signal(signal.SIGTERM))
    by_default = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert longtail("schedule") == (0, "closed\n", "")
    finally:
        signal.signal(signal.SIGTERM, by_default)


def test_status_beside_a_run_says_what_runs(unserved):
    (unserved.folder / "input.txt").write_text("sleep b1")
    command = [sys.executable, "-m", "dvc", "repro"]
    environment = unserved.environment | {FLOW: "none"}  # which would log it
    child = subprocess.Popen(command, cwd=unserved.folder, env=environment, start_new_session=True)
    try:
        until(lambda: (unserved.folder / "asleep").exists() or child.poll() is not None)
        assert child.poll() is None
        done = unserved.longtail("status", "--all")
        with (unserved.folder / workspace.LOCK).open("a") as lock:  # as `longtail run` holds it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            beside = unserved.longtail("status", "--all").stdout.splitlines()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert done.returncode == 0, done.stderr
    a, b1, b2, c, _ = done.stdout.splitlines()
    assert a.split(maxsplit=1) == ["a", "up to date"]
    assert b1.split(maxsplit=2) == ["b@1", "running", "by another process"]
    assert b2.split()[:2] == ["b@2", "missing"]
    assert beside[2].split(maxsplit=2)[:2] == ["b@2", "waiting"]
    assert [line.split()[1] for line in beside[:2]] == ["up", "running"]
    assert c.split(maxsplit=2)[:2] == ["c", "waiting"]
    assert "b@1" in c
