"""Stage `questions`: one question set, by the builder that its entry in the catalogue names (PopQA, section 3.3)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines import catalogue, stage

OUT = Path("data/questions")
SECTIONS = ("seed", "compute", "ingest", "popularity", "popqa", "c4")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.questions.build_questions", description=__doc__)
    parser.add_argument("name", choices=catalogue.names("questions"))
    name = parser.parse_args().name
    out, metrics = OUT / name, Path(f"data/metrics/{name}.json")
    make = catalogue.function(name, "questions")
    stage.run(f"questions@{name}", SECTIONS, lambda params: make(params, out), out=str(out), metrics=metrics)


if __name__ == "__main__":
    main()
