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
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 << 20)  # 64 MiB
print(torch.get_num_threads(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_pages_of_freed_tensors_are_not_asked_of_the_system_again():
    faults = {}
    for kind in ("used", "plain"):
        done = subprocess.run([sys.executable, "-c", FAULTS, kind], capture_output=True, text=True, check=True)
        threads, faults[kind] = map(int, done.stdout.split())
        assert kind == "plain" or threads == 1
    assert faults["used"] < 100 < faults["plain"], "a page is 4 kB, or 2 MB where the system gives huge ones"
