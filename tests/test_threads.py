"""Memory that torch has freed is used again."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from pipelines import threads
if sys.argv[1] == "used":
    threads.use(1)
layers = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 64))
faults = [0]
with torch.inference_mode():
    for _ in range(6):
        layers(torch.ones(4096, 64))  # states of 64 MiB
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
# the fewest of a pass: where pieces lie badly in the memory kept, a pass asks for more once
print(torch.get_num_threads(), min(after - before for before, after in zip(faults, faults[1:])))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_a_forward_pass_does_not_ask_the_system_again_for_memory_of_the_last():
    faults = {}
    for kind in ("used", "plain"):
        done = subprocess.run([sys.executable, "-c", FAULTS, kind], capture_output=True, text=True, check=True)
        threads, faults[kind] = map(int, done.stdout.split())
        assert kind == "plain" or threads == 1
    assert faults["used"] < 100 < faults["plain"], "a page is 4 kB, or 2 MB where the system gives huge ones"
