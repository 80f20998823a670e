"""Exact match and token F1 are those of lm-evaluation-harness and FlashRAG."""

from pathlib import Path

import pytest
import yaml

from pipelines.questions import matching

GOLDEN = Path(__file__).with_name("answer_metrics.yaml")


def test_ten_tricky_pairs_have_the_scores_of_public_code():
    pairs = yaml.safe_load(GOLDEN.read_text(encoding="utf-8"))["pairs"]
    assert len(pairs) == 10
    for pair in pairs:
        predicted = pair["predicted"]
        answers = pair["answers"]
        assert matching.exact(predicted, answers) == pair["exact"], predicted
        assert matching.token_f1(predicted, answers) == pytest.approx(pair["f1"]), predicted
