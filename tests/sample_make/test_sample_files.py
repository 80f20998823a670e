"""The sample's files are those that sample.make writes, and each folder has its line in
sample/README.md.
"""

import bz2
import gzip
import json
import math
import re
from pathlib import Path

import pytest
import zstandard
from safetensors import safe_open

from sample.make.data_files import write_data
from sample.make.sizes import Recipe

MOST_BYTES = 8_000_000  # of what everybody clones


def unpacked(file: Path) -> bytes:
    content = file.read_bytes()
    if file.suffix == ".gz":
        return gzip.decompress(content)
    if file.suffix == ".bz2":
        return bz2.decompress(content)
    if file.suffix == ".zst":
        return zstandard.ZstdDecompressor().decompressobj().decompress(content)
    return content


def contents(folder: Path) -> dict[str, bytes]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(folder).as_posix(): unpacked(file) for file in files}


@pytest.mark.slow
def test_the_data_are_those_that_the_generator_writes(root, tmp_path):
    write_data(tmp_path / "data", Recipe())
    assert contents(tmp_path / "data") == contents(root / "sample/data")


def test_each_folder_has_a_line(root):
    sample = root / "sample"
    page = (sample / "README.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(?:data/|models/)?(\w+)`", " ".join(line[:70] for line in lines)))
    folders = {folder.name for top in ("data", "models") for folder in (sample / top).iterdir()}
    assert folders <= named
    files = [file for file in sample.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES


def test_the_page_counts_what_is_there(root):
    sample = root / "sample"
    page = (sample / "README.md").read_text(encoding="utf-8")
    files = {
        name: sorted((sample / "data" / name).iterdir()) for name in ("wikidata", "c4", "pile")
    }
    entities = unpacked(files["wikidata"][0])
    items, properties = (entities.count(b'{"type":"%b"' % kind) for kind in (b"item", b"property"))
    texts, in_pile = (
        sum(unpacked(file).count(b"\n") for file in files[name]) for name in ("c4", "pile")
    )
    entries = json.loads((sample / "models/tokenizer/tokenizer.json").read_bytes())["model"][
        "vocab"
    ]
    assert f"{items} items and {properties} properties" in page
    assert f"{texts:,} texts" in page
    assert f"{in_pile:,} texts: five about each of {in_pile // 5} items" in page
    assert f"{len(entries):,} entries" in page
    for name in ("lm", "retriever"):
        with safe_open(sample / f"models/{name}/model.safetensors", "np") as weights:
            sizes = [math.prod(weights.get_slice(key).get_shape()) for key in weights.keys()]  # noqa: SIM118 - it has no iterator
        assert f"{round(sum(sizes), -3):,} parameters" in page


def test_the_second_month_has_more_entities_and_changed_articles(root):
    data = root / "sample/data"
    wikidata = [unpacked(file) for file in sorted((data / "wikidata").iterdir())]
    assert len(wikidata) == 2
    assert wikidata[0].count(b"\n") + Recipe().growth <= wikidata[1].count(b"\n")
    assert set(wikidata[0].splitlines()) < set(wikidata[1].splitlines())
    pages = [unpacked(file) for file in sorted((data / "wikipedia").iterdir())]
    said = [page.count(b"Much is said of it.") for page in pages]
    assert 0 < said[0] < said[1]
