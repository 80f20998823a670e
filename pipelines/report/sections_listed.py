"""The sections of the report in the order of the page. A study is in the list too, and says itself where it stands."""

from __future__ import annotations

from pipelines.report import accuracy_sections, effect_sections, lm_sections, retriever_sections, studies
from pipelines.report.adaptive_section import ADAPTIVE
from pipelines.report.entries import in_order
from pipelines.report.run_section import RUN

ENTRIES = in_order(
    [
        accuracy_sections.POPULARITY,
        accuracy_sections.ACCURACY,
        effect_sections.RETRIEVAL_EFFECT,
        retriever_sections.RECALL,
        ADAPTIVE,
        effect_sections.COSTS,
        effect_sections.MODELS,
        lm_sections.REPLUG,
        lm_sections.PERPLEXITY,
        lm_sections.ATTRIBUTION,
        retriever_sections.TRAINING,
        retriever_sections.TASKS,
        RUN,
        *studies.ENTRIES,
    ]
)
