"""Stage `questions`: one question set, by the builder that its entry in the catalogue names (PopQA, section 3.3)."""

from pathlib import Path

from pipelines import catalogue
from pipelines.work import stage

OUT = Path("data/questions")
SECTIONS = ("seed", "language", "compute", "ingest", "popularity", "popqa", "c4")


if __name__ == "__main__":
    name = stage.arguments(__doc__, name=catalogue.names("questions")).name
    out, metrics = OUT / name, Path(f"data/metrics/{name}.json")
    make = catalogue.function(name, "questions")
    stage.run(
        f"questions@{name}",
        SECTIONS,
        lambda params: make(params, out),
        out=str(out),
        metrics=metrics,
    )
