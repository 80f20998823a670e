"""`longtail status cache` lists what is kept of servers' answers, and drops what was named, and
nothing else.
"""

import re
from pathlib import Path

import completions_server
import pytest
import yaml

from flows.commands import answer_cache
from pipelines.lm.ledger import Ledger
from pipelines.params import params
from pipelines.work import http


@pytest.fixture
def longtail(tmp_path, monkeypatch, root, call):
    """The command in a folder with the answers of two servers. Gives the lines it prints."""
    monkeypatch.chdir(tmp_path)
    values = yaml.safe_load((root / "params.yaml").read_text())
    lm = completions_server.settings("http://one:1/v1").model_dump()
    values["lm"] |= {"far": lm | {"path": "gpt"}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    shown = {"params.yaml": {"lm.far": {"http": {"url": "http://one:1/v1"}}}}
    local = {"params.yaml": {"lm.tiny": {"http": None}}}
    stages = {"answer@x": {"cmd": "a", "params": shown}, "b": {"cmd": "b", "params": local}}
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": stages}))
    clock = [1767300000.0]  # 2026-01-01
    monkeypatch.setattr(http.time, "time", lambda: clock[0])
    for server, texts in (
        ("http://one:1/v1/", ("Who was Ada?", "Where is Velm?")),
        ("http://two:2/v1", ("Who?",)),
    ):
        ledger = Ledger(
            answer_cache.FILE.parent, "far", "gpt", params.LMServer(**lm["http"] | {"url": server})
        )
        for text in texts:
            ledger.put({server + text: b"answer"})
            clock[0] += 86_400
        ledger.close()

    (tmp_path / "conf").mkdir()
    for name in ("dvc.yaml", "conf/config.yaml"):
        Path(name).touch()

    def lines(*words):
        _, out, err = call("status", "cache", *words)
        return out.splitlines() or [err]

    return lines


def test_what_was_named_is_dropped_and_nothing_else(longtail):
    before = longtail()
    listed = [line.split() for line in before]
    assert [(line[0], line[1], line[2]) for line in listed] == [
        ("http://one:1/v1", "gpt", "2"),
        ("http://two:2/v1", "gpt", "1"),
    ]
    assert listed[0][-5] < listed[0][-2], "first and last"
    assert (
        longtail("--drop", "http://one:1/v1/")[-1] == "2 answers would be dropped; --yes drops them"
    )
    assert longtail() == before
    longtail("--drop", "http://one:1/v1/", "--yes")
    assert [line.split()[0] for line in longtail()] == ["http://two:2/v1"]
    assert longtail("--drop", "http://one:1/v1/")[0] == "no such answer is kept"


def test_the_stages_to_run_again_are_named(longtail):
    scored, other = (Path(".longtail/work") / name for name in ("answer@far/12", "answer@tiny/12"))
    for folder in (scored, other):
        folder.mkdir(parents=True)
    answered = Path(".longtail/work/answers@popqa-far-dense/12")
    answered.parent.mkdir(parents=True)
    answered.touch()
    assert longtail("--drop", "http://one:1/v1", "--yes")[1:] == [
        "2 answers dropped",
        "1 stages keep what they made of them, since DVC sees no change; to make them anew:",
        "  dvc repro --force --single-item answer@x",
        "  longtail run",
    ]
    assert (scored.exists(), answered.exists(), other.exists()) == (False, False, True)
    (answer_cache.FILE).write_bytes(b"x" * 5000)
    assert re.search(r"completions/answers\.sqlite: damaged .*remove the file", longtail()[-1])
