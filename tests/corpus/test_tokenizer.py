"""The tokenizer loads as any Hugging Face tokenizer, and takes every text as plain text."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import transformers

from pipelines.corpus import tokenizer as module
from pipelines.corpus.tokenizer import copy_pretrained, encode, open_tokenizer
from pipelines.errors import LongtailError
from sample.make.train_tokenizer import train_tokenizer

TEXTS = [
    "The cat sat on the mat.\n",
    "naïve café — 北京 🙂",
    "The dog sat on the log, the cat did not.",
] * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(TEXTS, 300, folder)
    return folder


def test_transformers_loads_it_with_its_special_tokens(folder):
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    assert loaded.is_fast
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (0, 1, 2)
    ids = loaded(TEXTS[1])["input_ids"]
    assert ids[0] == 0  # a text begins with <s>
    assert loaded.decode(ids, skip_special_tokens=True) == TEXTS[1]
    assert loaded("a </s> b")["input_ids"] == open_tokenizer(folder).encode("a </s> b").ids
    assert 1 not in loaded("a </s> b")["input_ids"]


def test_a_long_text_is_tokenised_in_stretches(folder, monkeypatch):
    text = "\n".join(TEXTS)
    [whole] = encode(open_tokenizer(folder), [text])
    monkeypatch.setattr(module, "SEGMENT", 500)
    [stretched, empty] = encode(open_tokenizer(folder), [text, ""])
    assert all(map(np.array_equal, whole, stretched))
    assert empty[0].shape == (0,)
    monkeypatch.setattr(module, "SEGMENT", 7)
    [(_, offsets)] = encode(open_tokenizer(folder), ["no line break anywhere in here"])
    assert [0, *offsets[:, 1]] == [*offsets[:, 0], 30]


def test_a_local_pretrained_tokenizer_is_copied(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pretrained = SimpleNamespace(path=str(folder), revision=None)
    size = float(open_tokenizer(folder).get_vocab_size())
    assert module.make_tokenizer(SimpleNamespace(tokenizer=pretrained)) == {"vocabulary": size}
    assert open_tokenizer(module.OUT).to_str() == open_tokenizer(folder).to_str()
    Path("empty").mkdir()
    for path, message in (
        (None, r"tokenizer\.path is null"),
        ("some/model", r"tokenizer\.revision is null; some/model is no local folder"),
        ("empty", "empty: no tokenizer could be loaded"),
    ):
        with pytest.raises(LongtailError, match=message):
            copy_pretrained("tokenizer", path, None, Path("out"))
    assert not Path("out").exists()
    with pytest.raises(LongtailError, match=r"tokenizer\.json: no such file"):
        open_tokenizer(Path("empty"))
    Path("empty/tokenizer.json").write_text("{}")
    with pytest.raises(LongtailError, match=r"tokenizer\.json: no tokenizer"):
        open_tokenizer(Path("empty"))
