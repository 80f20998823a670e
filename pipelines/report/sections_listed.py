"""The sections of the report in the order of the page. A study is in the list too, and says itself where it stands."""

from __future__ import annotations

from pipelines.report import lm_sections, questions_sections, studies
from pipelines.report.adaptive_section import ADAPTIVE
from pipelines.report.entries import in_order
from pipelines.report.run_section import RUN

ENTRIES = in_order(
    [
        questions_sections.POPULARITY,
        questions_sections.ACCURACY,
        questions_sections.HALVES,
        questions_sections.RETRIEVAL_EFFECT,
        lm_sections.RECALL,
        ADAPTIVE,
        questions_sections.COSTS,
        questions_sections.MODELS,
        lm_sections.REPLUG,
        lm_sections.PERPLEXITY,
        lm_sections.ATTRIBUTION,
        lm_sections.TRAINING,
        lm_sections.TASKS,
        RUN,
        *studies.ENTRIES,
    ]
)
