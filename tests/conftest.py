"""What tests share: the project's root, the folder of real files where this machine has one, a
played Wikimedia.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import small_results
import waiting
import wikimedia_server
import yaml
from forks import PRELOADED
from hypothesis import HealthCheck, settings
from once import once
from xdist.scheduler import LoadFileScheduling

from pipelines import redaction
from pipelines.work import executors, http

# a million objects of torch, Prefect and MLflow are there to stay
gc.set_threshold(100_000, 50, 50)
settings.register_profile(
    "on any machine",
    deadline=None,
    max_examples=40,  # others in each run
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("on any machine")
for name in http.TLS_FILES:
    os.environ.pop(name, None)  # each client would read the machine's certificates, in 0.2 seconds
pytest_plugins = ["small_project", "chromium", "systems", "finished_run"]
ROOT = Path(__file__).resolve().parents[1]
EMPTY_DATABASES = """
import asyncio
from flows import server
server.prepare(server.HOME)
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
from mlflow import MlflowClient
MlflowClient("sqlite:///mlflow.db").search_experiments()
"""
FIRST = (
    "test_kinds_of_runs.py",
    "test_end_to_end.py",
    "test_readme_commands.py",
    "flows",
    "test_stages_on_workers.py",
    "test_benchmarks.py",
    "report",
    "lsr",
    "test_http_faults.py",
)
SERVED_NAMES = "alerts full_disks gate hostile_runs live pages_elsewhere refresh remote "
SERVED_NAMES += "schedules secrets_of_runs"
SERVED = tuple(f"flows/test_{name}.py" for name in SERVED_NAMES.split())


def pytest_make_parametrize_id(val: object) -> str | None:
    """No test is called by bytes: compressed ones have the time, and all processes must call a
    test the same.
    """
    return "bytes" if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest begin first, so that no core idles at the end."""
    place = {name: number for number, name in enumerate(FIRST)}
    items.sort(
        key=lambda item: place.get(item.path.relative_to(ROOT / "tests").parts[0], len(FIRST))
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Files go to processes whole, and those whose tests share a Prefect server to one, which
    starts it once.
    """
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


class Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "a Prefect server" if file.endswith(SERVED) else file


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def real() -> Path:
    """The real files of the excerpt profile: $LONGTAIL_REAL, or the profile's own `fetch.root`."""
    configured = yaml.safe_load((ROOT / "conf/profile/excerpt.yaml").read_text(encoding="utf-8"))[
        "fetch"
    ]["root"]
    folder = Path(os.environ.get("LONGTAIL_REAL") or ROOT / configured)
    if not folder.is_dir():
        pytest.skip(f"no real data files at {folder}; set LONGTAIL_REAL to their folder")
    return folder


@pytest.fixture(scope="session")
def real_models() -> Path:
    """A folder of real weights as Hugging Face folders: smollm2-135m (a language model) and
    minilm (an encoder).
    """
    folder = Path(os.environ.get("LONGTAIL_REAL_MODELS") or "no folder")
    if (
        not (folder / "smollm2-135m/model.safetensors").is_file()
        or not (folder / "minilm/config.json").is_file()
    ):
        pytest.skip(
            "no real weights; set LONGTAIL_REAL_MODELS to a folder with smollm2-135m and minilm"
        )
    return folder


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """The tables of a world with every effect, to be read only: (data folder, what was right by
    method).
    """

    def make(home: Path) -> None:
        with chdir(home):
            np.savez("right.npz", **small_results.write_data(home / "data"))

    home = once(tmp_path_factory, "present", make)
    return home / "data", dict(np.load(home / "right.npz"))


@pytest.fixture(scope="session")
def databases(root, tmp_path_factory) -> Path:
    """A project's folder with Prefect's and MLflow's databases, still empty, which take a new
    project six seconds.

    Copy it into projects that test something else than a first run.
    """

    def make(folder: Path) -> None:
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PREFECT_", "MLFLOW_"))
        }
        command = [sys.executable, "-c", EMPTY_DATABASES]
        subprocess.run(command, cwd=folder, env=environment | {"PYTHONPATH": str(root)}, check=True)

    return once(tmp_path_factory, "databases", make)


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test has hidden is not hidden in the next one."""
    monkeypatch.setattr(redaction, "_known", [])


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """What a stage or a command sets for its process is put back: the environment, and when
    garbage is collected.
    """
    environment, thresholds = dict(os.environ), gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    kept = {name: value for name, value in os.environ.items() if name == "PYTEST_CURRENT_TEST"}
    if dict(os.environ) | kept != environment | kept:
        os.environ.clear()
        os.environ.update(environment | kept)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test works in its own folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """The longtail command in this process, called from the working folder.

    Gives exit code, output and errors.
    """
    from flows import cli, terminal

    def call(*words, command="longtail"):
        monkeypatch.setattr(terminal, "CALLED_FROM", Path.cwd())
        monkeypatch.setattr(sys, "argv", [command, *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def wikimedia(monkeypatch: pytest.MonkeyPatch) -> Iterator[wikimedia_server.Wikimedia]:
    """A server on loopback that plays Wikimedia; the client doesn't wait between its attempts."""
    monkeypatch.setattr(http, "BACKOFF", 0.0)
    with wikimedia_server.running() as server:
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator["distributed.LocalCluster"]:  # noqa: F821
    """A Dask cluster whose two workers are threads of this process, reached by TCP.

    It can lose none of them.
    """
    yield from _cluster(
        tmp_path_factory.mktemp("elsewhere"), n_workers=2, processes=False, protocol="tcp"
    )


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator["distributed.LocalCluster"]:  # noqa: F821
    """A Dask cluster of four processes, started elsewhere; one shard may cost one of them."""
    yield from _cluster(tmp_path_factory.mktemp("elsewhere"), n_workers=4)


def _cluster(folder: Path, **how: object) -> Iterator["distributed.LocalCluster"]:  # noqa: F821
    import dask
    import distributed

    settings = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.comm.timeouts.connect": "3s",
    }
    settings |= {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(settings):
        distributed.utils.get_mp_context().set_forkserver_preload(PRELOADED)
        with chdir(folder):
            cluster = distributed.LocalCluster(threads_per_worker=1, dashboard_address=":0", **how)
        with cluster, pytest.MonkeyPatch.context() as patch:
            patch.setattr(executors, "PATIENCE_SECONDS", waiting.PATIENCE)
            yield cluster
