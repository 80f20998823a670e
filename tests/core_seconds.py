"""Core seconds of each test, with the processes that it waited for: `python -m pytest -p
core_seconds`.

Prints the sum of each folder (of each file that lies in tests/ itself), and the tests that cost
most. A process that outlives its test counts where it ends, or not at all.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

LISTED = 40
STARTED = pytest.StashKey[float]()


def spent() -> float:
    """Core seconds of this process so far, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.config.stash[STARTED] = spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Iterator[pytest.TestReport]:
    report = yield
    if report.when == "teardown":
        report.user_properties.append(("core seconds", spent() - item.config.stash[STARTED]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tests: Counter = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            tests[getattr(report, "nodeid", "")] += dict(
                getattr(report, "user_properties", ())
            ).get("core seconds", 0)
    folders: Counter = Counter()
    for name, seconds in tests.items():
        parts = name.partition("::")[0].split("/")
        folders["/".join(parts[:2])] += seconds
    write = terminalreporter.write_line
    write(f"{sum(tests.values()):8.1f} core seconds in all")
    for rows in (folders.most_common(), tests.most_common(LISTED)):
        write("")
        for name, seconds in rows:
            write(f"{seconds:8.1f}  {name}")
