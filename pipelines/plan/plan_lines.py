"""A plan as lines for people: what models read, what the disk holds, and what is assumed."""

from collections.abc import Iterator

from pipelines.plan import speed
from pipelines.plan.plan import BYTES_OF_GB, EMBEDDINGS, Plan
from pipelines.plan.token_counts import QUESTION_TOKENS

DEVICES = {
    speed.CPU: "this machine's CPU, if models reach half the speed of its matrix products",
    speed.H200: "one H200 or H100, by measured rates; other GPUs are slower",
}
ASSUMPTIONS = f"""\
A question with its answer counts as {QUESTION_TOKENS} tokens, a passage as chunk.tokens.
Work that an earlier run kept is not done again, but counted here.
Downloading, reading dumps and searching come on top, as do the tables that are made of dumps.
Outputs are in data and in .dvc/cache, and downloads in .longtail/downloads too. With hard links,
which `longtail init --profile` sets for such sizes, they are there once:
docs/passages.md#memory-and-disk.
"""
UNKNOWN_CORPUS = "the number of its documents is unknown until `longtail run corpus`"
UNKNOWN_SIZE = "the size is unknown until it is fetched, or stands in plan.downloads_gb"
UNKNOWN_MODEL = """\
A model of unknown hours has no config.json on this machine, no size in plan.models,
or is on a server whose tokens_per_minute are not set.
"""


def plan_lines(plan: Plan) -> Iterator[str]:
    """The plan as lines."""
    yield f"profile {plan.profile}, on {DEVICES[plan.device]}"
    for corpus, count in plan.documents.items():
        yield f"{corpus}: {f'{count:,} documents' if count else UNKNOWN_CORPUS}"
    yield ""
    yield f"{'M tokens':>12}{'hours':>10}"
    for row in plan.work:
        hours = "unknown" if row.hours is None else f"{row.hours:,.2f}"
        cost = f", costs {row.cost:,.2f}" if row.cost else ""
        yield f"{row.tokens / 1e6:12,.2f}{hours:>10}  {row.model}: {row.work}{cost}"
    tokens = sum(row.tokens for row in plan.work)
    yield f"{tokens / 1e6:12,.2f}{plan.hours:10,.2f}  together"
    yield ""
    yield f"{'GB':>12}"
    for name, size in plan.space.items():
        yield _space(size, name if size or name == EMBEDDINGS else f"{name}: {UNKNOWN_SIZE}")
    yield _space(plan.disk_bytes, "on this machine, in all copies")
    yield _space(plan.remote_bytes, "in DVC's remote, after a push")
    yield ""
    yield from ASSUMPTIONS.splitlines()
    if any(row.hours is None for row in plan.work):
        yield from UNKNOWN_MODEL.splitlines()


def _space(size: int, what: str) -> str:
    return f"{size / BYTES_OF_GB:12,.2f}  {what}"
