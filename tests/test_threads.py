"""Memory that torch has freed is used again."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import os, resource, torch
from pipelines import threads
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_a_forward_pass_does_not_ask_the_system_again_for_memory_of_the_last():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    (threads, used), (_, plain) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert threads == 1
    assert used < 100 < plain, "a page is 4 kB, or 2 MB where the system gives huge ones"
