"""The table of a year and its page. Running this file plays the year twice, compares the bytes of
all outputs, and writes docs/measured/tables/year.csv and docs/measured/year.md:

    python tests/year_table.py FOLDER     # half an hour; FOLDER gets the two years
"""

import csv
import hashlib
import json
import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import webhook  # noqa: E402 - these are found by the line above
import wikimedia_server  # noqa: E402
from quick_project import git  # noqa: E402
from year import Year, month_tag  # noqa: E402
from year_tries import IN_WORDS  # noqa: E402

TABLE = ROOT / "docs/measured/tables/year.csv"
PAGE = ROOT / "docs/measured/year.md"
MEASURED = {  # column -> the stage and its metric
    "embedded": ("index@wikipedia-dense", "embedded"),
    "vectors_kept": ("index@wikipedia-dense", "kept"),
}
PAGE_TEXT = """\
# A year by simulation

[A schedule](../schedules.md) built {months} months of the sample's world, beside a server that plays Wikimedia. There were {runs} runs, and
{alerts} alerts arrived. A person did what rows with *someone* say. Each month has a few entities more than the one before, some changed
articles, and other page views. A run makes PopQA, an index and answers, with two small models that have random weights. It embeds what is new; the
other vectors are kept from an earlier run. The other profile makes PopQA alone.

| what happened | the run ended as |
|---|---|
{rows}

[The table](tables/year.csv) has each run: what landed, how many texts were embedded, what it said, and a hash of all outputs. The year was
played twice, and all outputs of all months had the same bytes. A fresh clone brought months back from the remote, before and after
old months were removed.

```sh
python tests/year_table.py FOLDER     # plays two years, and writes this page; needs the right to mount a file system
pytest tests/flows/test_year.py       # plays one, and looks at everything that landed
```
"""
COMMIT = re.compile(r"\bcommit [0-9a-f]{7}\b")
TEMPORARY = re.compile(r"[^/ ]*\.tmp\b")
UNWRITTEN = re.compile(r"(?<=fetch: ).*(?=: no space left)")  # several files are written together


@dataclass(frozen=True)
class Row:
    """A run of the year."""

    profile: str
    month: str
    happened: str
    state: str
    landed: str  # the tag and the release
    embedded: str  # texts
    vectors_kept: str
    alerts: int
    said: str
    outputs: str  # one MD5 for all hashes in dvc.lock


def rows(year: Year) -> list[Row]:
    """A row for each run of a year that was played."""
    metrics = _metrics(year)
    table = []
    for run, attempt, (state, message) in zip(year.runs, year.tries, year.states(), strict=True):
        month = year.months[attempt.month]
        has_landed = message.endswith("has landed")
        measured = {}
        for column, (stage, name) in MEASURED.items():
            value = metrics.get(run, {}).get(stage, {}).get(name)
            measured[column] = "" if value is None else f"{value:.0f}"
        tag = month_tag(attempt.profile, month)
        row = Row(
            profile=attempt.profile,
            month=month,
            happened=IN_WORDS[attempt.happens],
            state=state,
            landed=_landed(year, tag) if has_landed else "",
            **measured,
            alerts=sum(run in text for text in year.hook.texts),
            said=_said(year, message),
            outputs=_digest(outputs(year, tag)) if has_landed else "",
        )
        table.append(row)
    return table


def outputs(year: Year, revision: str) -> dict[str, str]:
    """Path -> hash of each output, as dvc.lock of a commit says."""
    stages = yaml.safe_load(git(year.folder, "show", f"{revision}:dvc.lock"))["stages"]
    hashes = {}
    for stage in stages.values():
        for out in stage.get("outs", []):
            hashes[out["path"]] = out["md5"]
    return hashes


def _digest(hashes: dict[str, str]) -> str:
    return hashlib.md5(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _landed(year: Year, tag: str) -> str:
    """All tags of the commit with a tag."""
    tags = git(year.folder, "tag", "--points-at", f"{tag}^{{commit}}").split()
    return ", ".join(tags)


def _said(year: Year, message: str) -> str:
    """A message without what may be another each time, such as an address or a commit."""
    message = message.replace(year.dumps.server.address, "https://dumps.wikimedia.org")
    message = message.replace(str(year.hub), "the remote")
    message = UNWRITTEN.sub("a file", message)
    message = TEMPORARY.sub("a temporary file", message)
    return COMMIT.sub("a commit", message)


def _metrics(year: Year) -> dict[str, dict[str, dict[str, float]]]:
    """Prefect's id of a run -> stage -> what it measured, of the stages that ran."""
    _, parents, children = year.schedules.project.runs()
    metrics = {}
    for parent in parents:
        run = parent.data.tags.get("prefect.flow_run_id")
        stages = children[parent.info.run_id]
        metrics[run] = {name: stage.data.metrics for name, stage in stages.items()}
    return metrics


def play_twice(folder: Path) -> tuple[list[Row], list[str]]:
    """The table of the first of two years, and the lines in which the second one differs."""
    tables = []
    hashes = []
    with wikimedia_server.running() as server:  # one: the outputs name its address
        for name in ("first", "second"):
            server.reset()
            server.version = '"one"'
            with webhook.receiving() as hook:
                year = Year(folder / name, ROOT, server, hook)
                try:
                    year.play()
                    tables.append(rows(year))
                    tags = [month_tag(profile, month) for profile, month in year.landed()]
                    hashes.append({tag: outputs(year, tag) for tag in tags})
                finally:
                    year.close()

    differences = []
    for row, other in zip(*tables, strict=True):
        if row != other:
            differences.append(f"{row}\n{other}")
    first, second = hashes
    for tag, outs in first.items():
        for path, digest in outs.items():
            if second[tag].get(path) != digest:
                differences.append(f"{tag}: {path}")
    return tables[0], differences


def write(table: list[Row]) -> None:
    """Write TABLE and PAGE."""
    names = [field.name for field in fields(Row)]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in table:
            writer.writerow([getattr(row, name) for name in names])

    PAGE.write_text(page(table), encoding="utf-8")


def page(table: list[Row]) -> str:
    """The text of PAGE."""
    ends: dict[str, list[str]] = {}  # what happened -> the states of such runs, each once
    for row in table:
        states = ends.setdefault(row.happened, [])
        if row.state not in states:
            states.append(row.state)
    lines = [f"| {happened} | {', then '.join(states)} |" for happened, states in ends.items()]
    months = {row.month for row in table}
    n_alerts = sum(row.alerts for row in table)
    return PAGE_TEXT.format(
        rows="\n".join(lines), months=len(months), runs=len(table), alerts=n_alerts
    )


def main() -> None:
    table, differences = play_twice(Path(sys.argv[1]).resolve())
    if differences:
        print(*differences, sep="\n")
        raise SystemExit("the two years differ; nothing is written")
    write(table)


if __name__ == "__main__":
    main()
