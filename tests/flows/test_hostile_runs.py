"""A run whose stages print, measure and fail with hostile labels: terminal, logs, Prefect and
MLflow stay harmless.
"""

import json
import re
import sys

import hostile
from quick_project import LAST

from flows import gate, graph, landing
from flows.parts import Part
from pipelines.check.acceptances import Acceptance
from pipelines.check.baseline import Key
from pipelines.check.judgement import Unmet

STAGE = """
import json, sys
from pathlib import Path

from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage
from pipelines.errors import LongtailError
from pipelines.params.param_types import Section
class Settings(Section):
    seed: int
labels = json.loads(Path("labels.json").read_text(encoding="utf-8"))
def work(params):
    for label in labels:
        print(label)
        print(label, file=sys.stderr)
    with atomic("data/a") as temporary:
        temporary.write_text("a")
    write_json("data/metrics/a.json", {label: {"value": 1.0, label: label} for label in labels})
    if "fails" in sys.argv:
        raise LongtailError(f"input.txt: {' '.join(labels)}, expected a name; edit it")
    if "breaks" in sys.argv:
        raise ValueError("".join(labels))
    return {label: 1.0 for label in labels}
stage.run("a", Settings, work, out="data/a")
"""
DVC = """
stages:
  a:
    desc: "{desc}"
    cmd: {python} work.py {how}
    outs: [data/a]
    metrics: [data/metrics/a.json]
"""


def test_hostile_labels_steer_no_terminal_page_or_tag(project):
    """Where the stage is done, fails, and breaks."""
    (project.folder / "work.py").write_text(STAGE)
    (project.folder / "labels.json").write_text(json.dumps(hostile.LABELS), encoding="utf-8")
    texts = []
    for how in ("", "fails", "breaks"):
        text = DVC.format(
            python=sys.executable,
            how=how,
            desc="<img src=x onerror=alert(1)> [a](javascript:alert(1))",
        )
        (project.folder / "dvc.yaml").write_text(text)
        done = project.longtail("run", tracked=True)
        assert done.returncode == (1 if how else 0), done.stderr
        texts.append(done.stdout + done.stderr)
        if not how:
            ((data,),) = project.prefect.ask(
                f"SELECT data FROM artifact WHERE flow_run_id = {LAST}"
            )
    (error,) = [line for line in texts[1].splitlines() if line.startswith("error: a: input.txt: ")]
    assert "expected a name; edit it (all it said: .longtail/logs/a.log)" in error
    stages = {label: [] for label in hostile.LABELS}
    unmet = []
    accepted = []
    for label in hostile.LABELS:
        unmet.append(Unmet(Key(label, label, label), 1.0, 2.0, label))
        accepted.append(
            Acceptance(
                expectation=label,
                file=label,
                measure=label,
                month="2021-10",
                value=1.0,
                bound=2.0,
                reason=label,
                who=label,
            )
        )
    judged = gate.Judgement(Part.refresh, 1, unmet, accepted, [], {})
    pages = [
        landing.describe(hostile.LABELS, hostile.LABELS, stages, len(stages)),
        landing.describe_unmet(judged),
    ]
    shown = [line for page in pages for line in page.splitlines() if not line.startswith("    ")]
    assert len(shown) > 3 * len(hostile.LABELS)
    assert not [line for line in shown if re.search(r"(?<!\\)[<!\[]", line)], (
        "the pages show Markdown"
    )
    texts += (
        pages
        + [data]
        + [file.read_text(encoding="utf-8") for file in (project.folder / graph.LOGS).iterdir()]
    )
    for table in ("log", "flow_run_state", "task_run_state"):
        texts += [text or "" for (text,) in project.prefect.ask(f"SELECT message FROM {table}")]
    assert any("over written" in text for text in texts)
    _, parents, children = project.runs()
    by_state = [children[parent.info.run_id]["a"] for parent in parents]
    assert [run.info.status for run in by_state] == ["FINISHED", "FAILED", "FAILED"]
    for data in (run.data for run in by_state):
        texts += [*data.tags.values(), *data.params.values(), *data.metrics, *data.params]
    assert not [text for text in texts if re.search(hostile.STEERING, text)]
    assert by_state[1].data.tags["error"].endswith("expected a name; edit it")
    assert by_state[2].data.tags["error"].startswith("ValueError: ")
