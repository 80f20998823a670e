"""Stage `evaluate_lm`, with the studies that add figures to bits per byte."""

from pipelines.evaluation import evaluate_lm
from pipelines.studies import controls

STUDIES = [
    controls,
]

if __name__ == "__main__":
    evaluate_lm.main(STUDIES)
