"""Stage `score_lm`, with the studies that score more beside the candidates' pairs."""

from pipelines.scoring import score_lm
from pipelines.studies import controls

STUDIES = [
    controls,
]

if __name__ == "__main__":
    score_lm.main(STUDIES)
