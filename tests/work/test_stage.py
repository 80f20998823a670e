"""Every stage starts and ends the same way: params checked first, one line on an error, exit code
1."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.params.param_types import Section
from pipelines.params.params import Compute
from pipelines.work import stage


class Seed(Section):
    seed: int


class WithCompute(Section):
    compute: Compute


@pytest.fixture(autouse=True)
def here(root, tmp_path, monkeypatch):
    shutil.copy(root / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_STAGE", raising=False)


def test_the_last_line_says_where_the_result_is(capsys):
    """Metrics but curves are written; by hand nothing is recorded."""
    file = Path("metrics/x.json")
    stage.run(
        "chunk",
        Seed,
        lambda params: {"rows": 2, "loss": [3.0, 1.0]},
        out="data/corpus",
        metrics=file,
    )
    assert capsys.readouterr().out.splitlines()[-1] == "chunk: done, see data/corpus"
    assert json.loads(file.read_text(encoding="utf-8")) == {"rows": 2}
    assert not Path(".longtail/tracking").exists()


def test_a_users_error_is_one_line_and_exit_code_1(capsys):
    """Params are checked before any work."""

    def work(params):
        raise LongtailError("data/raw/x.bz2: cut in the middle; fetch it again")

    for seed, said in (
        ("0", "error: chunk: data/raw/x.bz2: cut in the middle; fetch it again\n"),
        ("x", "error: chunk: params.yaml: seed is 'x'"),
    ):
        Path("params.yaml").write_text(
            Path("params.yaml").read_text().replace("seed: 0", f"seed: {seed}")
        )
        with pytest.raises(SystemExit) as end:
            stage.run("chunk", Seed, work, out="data/corpus")
        assert end.value.code == 1
        assert capsys.readouterr().err.startswith(said)


THREADS = """
import os, sys
import numpy
from threadpoolctl import threadpool_info
from pipelines.params.param_types import Section
from pipelines.params.params import Compute
from pipelines.work import stage
def work(params):
    blas = [one for one in threadpool_info() if one["user_api"] == "blas"]
    print(os.environ["OMP_NUM_THREADS"], *{one["num_threads"] for one in blas})
    return {}
class Seed(Section):
    seed: int
class WithCompute(Seed):
    compute: Compute
stage.run("x", globals()[sys.argv[1]], work, out="x")
"""


def test_the_number_of_threads_is_the_params_one_or_one(root):
    """NumPy's too, where a stage's module has imported it before."""
    Path("params.yaml").write_text(
        Path("params.yaml").read_text().replace("threads: 1", "threads: 3")
    )
    environment = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONPATH": str(root)}
    for settings, threads in (("WithCompute", "3 3"), ("Seed", "1 1")):
        command = [sys.executable, "-c", THREADS, settings]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
        assert done.stdout.splitlines()[0] == threads


FAULTS = """
import os, resource, torch
from pipelines.work import threads
used = os.fork() == 0
if used:
    threads.use(1)
else:
    os.wait()
layers = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 64))
faults = [0]
with torch.inference_mode():
    for _ in range(4):
        layers(torch.ones(4096, 64))  # states of 64 MiB
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
# the fewest of a pass: where pieces lie badly in the memory kept, a pass asks for more once
print(torch.get_num_threads(), min(after - before for before, after in zip(faults, faults[1:])))
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are"
)
def test_a_forward_pass_reuses_the_memory_of_the_last():
    """In the best of three processes: on a busy machine the C library may take memory from
    elsewhere."""
    found = []
    while len(found) < 3 and not any(used < 100 for used, _ in found):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
        )
        (threads, used), (_, plain) = (map(int, line.split()) for line in done.stdout.splitlines())
        found.append((used, plain))
        assert threads == 1
    assert found[-1][0] < 100 < found[-1][1], (
        "a page is 4 kB, or 2 MB where the system gives huge ones"
    )
