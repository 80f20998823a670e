"""The stage base_lm: a served model is named and has its tokenizer."""

import json
from pathlib import Path

import pytest
from completions_server import settings

from pipelines.errors import LongtailError
from pipelines.lm import base_lm

pytestmark = pytest.mark.usefixtures("workplace")


def test_a_served_model_is_named_and_has_its_tokenizer(tiny, tmp_path):
    url = "http://127.0.0.1:1/v1"
    base_lm.name_served(settings(url), tmp_path / "named")
    assert json.loads((tmp_path / "named/served.json").read_text()) == {
        "model": "served",
        "url": url,
    }
    base_lm.name_served(settings(url, tiny), tmp_path / "big")
    assert {file.name for file in (tmp_path / "big").glob("*.json")} > {
        "served.json",
        "tokenizer.json",
    }
    with pytest.raises(LongtailError, match=r"lm\.big\.revision is null"):
        base_lm.name_served(settings(url, Path("some/model")), tmp_path / "big")
