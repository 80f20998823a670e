"""Stage `questions`: one question set, by the builder that its entry in the catalogue names (PopQA,
section 3.3).
"""

from pathlib import Path

from pipelines import catalogue
from pipelines.questions.settings import Settings
from pipelines.storage import parquet
from pipelines.tables.questions import QUESTIONS
from pipelines.work import stage

OUT = Path("data/questions")


def main() -> None:
    name = stage.arguments(__doc__, name=catalogue.names("questions")).name
    out = OUT / name
    build = catalogue.function(name, "questions")

    def build_set(settings: Settings) -> stage.Metrics:
        figures = build(settings, out)
        check_columns(out / f"{name}.parquet")
        return figures

    metrics = Path(f"data/metrics/{name}.json")
    stage.run(f"questions@{name}", Settings, build_set, out=str(out), metrics=metrics)


def check_columns(path: Path) -> None:
    """Raise LongtailError if a question set lacks one of the columns that every set has."""
    QUESTIONS.check(parquet.schema_of(path), str(path))


if __name__ == "__main__":
    main()
