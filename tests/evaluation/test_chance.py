"""What a model is compared with to be better than chance is read from its files."""

import json

from tokenizers import Tokenizer, models

from pipelines.evaluation.chance import vocabulary_size


def test_the_vocabulary_is_that_of_config_or_tokenizer(tmp_path):
    assert vocabulary_size(tmp_path) is None
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert vocabulary_size(tmp_path) == 3, "of a model on a server, the tokenizer alone is here"
    for config in ({"vocab_size": 1700}, {"text_config": {"vocab_size": 1700}}):
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert vocabulary_size(tmp_path) == 1700
