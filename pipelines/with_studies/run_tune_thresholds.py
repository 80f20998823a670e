"""Stage `tune_thresholds`, with the studies that make tables from all thresholds."""

from pipelines.adaptive import tune_thresholds
from pipelines.studies import carried

STUDIES = [
    carried,
]

if __name__ == "__main__":
    tune_thresholds.main(STUDIES)
