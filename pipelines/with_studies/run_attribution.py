"""Stage `attribute`, with the studies that give each token a number."""

from pipelines.replug import attribution
from pipelines.studies import (
    copying,
    rarity,
)

STUDIES = [
    rarity,
    copying,
]

if __name__ == "__main__":
    attribution.main(STUDIES)
