"""Named samples of PopQA: whose questions they are, and that nothing else counts where one is asked
for.
"""

from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from knowledge_tables import chosen, popqa

from pipelines import subsets
from pipelines.questions.popqa import build_popqa

pytestmark = pytest.mark.usefixtures("workplace")
SIZES = {
    "longtail": 1399,
    "activerag": 500,
    "hipporag": 1000,
    "t2rag": 1000,
    "retrievalqa-gpt4": 50,
}


def test_samples_have_the_sizes_that_their_papers_say(root):
    """They lie in the long tail, and the guide has the same numbers."""
    found = {name: subset.ids for name, subset in subsets.read_subsets().items()}
    assert {name: len(ids) for name, ids in found.items()} == SIZES
    assert [name for name in SIZES if found[name] <= found["longtail"]] == [
        name for name in SIZES if name != "hipporag"
    ]
    guide = (root / "docs/thresholds.md").read_text(encoding="utf-8")
    for name, count in SIZES.items():
        assert f"| `{name}` | {count:,} |" in guide
    assert f"; {len(found['hipporag'] & found['longtail'])} are of the long tail" in guide


def test_the_long_tail_is_rows_below_100_views(real):
    """A run can ask it alone."""
    file = real / "popqa/popQA.tsv"
    sections = {"popularity": SimpleNamespace(month="2021-10")}
    of = {}
    for name in (None, "longtail", "hipporag"):
        settings = chosen(popqa=popqa(source="published", subset=name), **sections)
        build_popqa(settings, Path("out"), Path("none.parquet"), file)
        of[name] = pq.read_table("out/popqa.parquet", columns=["question_id", "s_pop"]).to_pydict()
    ids, views = of[None].values()
    assert of["longtail"]["question_id"] == [
        id_ for id_, pop in zip(ids, views, strict=True) if pop < 100
    ]
    for name in ("longtail", "hipporag"):
        assert len(of[name]["question_id"]) == SIZES[name]
    for subset in subsets.read_subsets().values():
        assert subset.ids <= set(ids)
    assert set(of["hipporag"]["question_id"]) < set(ids[:1110])
