"""C4's sample: a draw by hash of its texts, whatever their files."""

import json
from pathlib import Path

from fetching import saved

from pipelines import draws
from pipelines.sources import c4
from pipelines.sources.rejects import Rejects


def shard(path: Path, *texts: str) -> Path:
    return saved(path, "\n".join(json.dumps({"text": text}) for text in texts))


def test_a_sample_is_drawn_from_all_files_text_by_text(tmp_path):
    texts = [f"{number} " + "é" * 500 for number in range(4000)]  # 4 MB
    paths = [shard(tmp_path / f"{i}.json.gz", *texts[i::4]) for i in range(4)]
    sample = c4.draw_sample(paths, 1, 0, Rejects(0.0))
    drawn = list(c4.read_sample(paths, sample))
    assert len(drawn) == sample.texts
    assert sum(len(text.encode()) for text in drawn) == sample.size
    assert 1_000_000 <= sample.size < 1_003_000
    of_files = [sum(text in set(texts[i::4]) for text in drawn) for i in range(4)]
    assert min(of_files) > 200  # of some 250 each
    by_hash = sorted(texts, key=lambda text: draws.uniform(0, "c4", text))
    assert set(drawn) == set(by_hash[: len(drawn)])
    again = c4.draw_sample(paths[::-1], 1, 0, Rejects(0.0))
    assert set(c4.read_sample(paths[::-1], again)) == set(drawn)
    assert set(c4.read_sample(paths, c4.draw_sample(paths, 1, 1, Rejects(0.0)))) != set(drawn)


def test_a_sample_of_less_than_it_may_have_is_all_texts_in_the_files_order(tmp_path):
    paths = [shard(tmp_path / f"{i}.json.gz", f"{i} b", "a") for i in range(3)]
    sample = c4.draw_sample(paths, 1, 0, Rejects(0.0))
    assert list(c4.read_sample(paths, sample)) == ["0 b", "a", "1 b", "a", "2 b", "a"]
    assert (sample.texts, sample.size) == (6, 12)
