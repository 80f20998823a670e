"""What Prefect shows of a run that landed: its results, what ran, and what the gate
finds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.gate import Judgement
from flows.graph import Reason, Stage
from pipelines import safe_text
from pipelines.params import params_file
from pipelines.storage.atomic import read_json
from pipelines.work import run_names

HEADLINES = Path("data/headlines.json")  # of the stage `report`: figures that sum up a run
REPORT = Path("data/report")
REASONS_SHOWN = 2  # of why a stage ran


def tags(profile: str, month: str) -> list[str]:
    """What Prefect's list of runs is filtered by."""
    git = run_names.git_tags()
    listed = [f"profile: {profile}", f"month: {month}"]
    if run_names.COMMIT in git:
        listed.append(f"commit: {git[run_names.COMMIT][: run_names.COMMIT_CHARS]}")
    if git.get(run_names.DIRTY) == "true":
        listed.append("uncommitted changes")
    return listed


def read_results(stages: Sequence[Stage]) -> list[str]:
    """The main results of what the stages made, as lines of text."""
    # They take long to import.
    from pipelines.report.result_lines import result_lines
    from pipelines.report.run_tables import Settings

    outs = {out for stage in stages for out in stage.outs}
    return result_lines(outs, params_file.load_settings(Settings))


def read_headlines(stages: Sequence[Stage]) -> dict[str, float]:
    """Name -> figure of the run's headlines; none if the stages do not write them."""
    writes_headlines = any(HEADLINES in stage.outs for stage in stages)
    if not writes_headlines or not HEADLINES.is_file():
        return {}
    return read_json(HEADLINES)


def read_changes(release: Path) -> dict[str, float]:
    """How many questions of each relation a release added and lost, since the one before."""
    from pipelines.storage import parquet  # takes long to import

    file = release / "difference/difference.parquet"
    if not file.is_file():
        return {}
    questions = parquet.read_parquet(file, ["relation", "change"])
    counted = questions.group_by(["relation", "change"]).aggregate([([], "count_all")])
    changes = {}
    for row in counted.to_pylist():
        if row["change"] != "kept":
            name = f"popqa.{row['relation']}.{row['change']}"
            changes[name] = float(row["count_all"])
    return changes


def find_report(stages: Sequence[Stage]) -> Path | None:
    """The folder of the report; None if the stages do not write it."""
    writes_report = any(REPORT in stage.outs for stage in stages)
    return REPORT if writes_report and REPORT.is_dir() else None


def link_report(report: Path | None) -> str:
    """Say in Markdown where the report is."""
    if report is None:
        return "This run writes no report."
    from flows.explorer import PORT  # takes long to import

    page = (report / "index.html").absolute()
    return (
        f"[The report](http://127.0.0.1:{PORT}/report/), while `longtail explore` is open. Its "
        f"file is `{page}`."
    )


def describe(
    results: Sequence[str],
    tags: Sequence[str],
    ran: Mapping[str, Sequence[Reason]],
    n_stages: int,
) -> str:
    """Describe a run in Markdown: its results, its tags, and which stages ran and why.

    `ran` gives the reasons for each stage that ran, as far as they were known when the run began.
    """
    lines = []
    for line in results:
        lines.append(f"    {safe_text.line(line)}")  # indented, Markdown shows it as it is
    lines.append("")
    lines += [f"- {safe_text.markdown(tag)}" for tag in tags]
    lines.append(f"- {len(ran)} of {n_stages} stages ran")
    for stage, reasons in ran.items():
        line = f"  - {safe_text.markdown(stage)}"
        if reasons:
            shown = "; ".join(map(str, reasons[:REASONS_SHOWN]))
            line += f": {safe_text.markdown(shown)}"
        lines.append(line)
    return "\n".join(lines)


def describe_unmet(judged: Judgement) -> str:
    """Say in Markdown which expectations do not hold, and which of them are accepted."""
    if not judged.unmet:
        return "Every expectation holds."
    lines = ["Expectations that do not hold:", ""]
    lines += [f"- {safe_text.markdown(str(failure))}" for failure in judged.unmet]
    lines += [f"- {safe_text.markdown(str(entry))}" for entry in judged.accepted]
    return "\n".join(lines)
