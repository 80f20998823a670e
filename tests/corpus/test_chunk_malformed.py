"""Malformed input, as large as it comes: a bad row is a named reject and costs no other, a bad file an error."""

import bz2
import json
from pathlib import Path

import pytest
import zstandard
from corpora import chosen, joined, make, text_of, write_pile, write_wikipedia

from pipelines.errors import LongtailError

pytestmark = pytest.mark.usefixtures("project")
GOOD = [text_of(i) for i in range(60)]
NESTED = "{{a|" * 10_000 + "text" + "}}" * 10_000


def test_a_line_of_100_megabytes_or_no_utf8_or_half_of_json_is_a_named_reject(tokenizer: Path) -> None:
    endless = json.dumps({"text": "word " * 20_000_000}).encode()
    write_pile(GOOD, extra=b"\n".join([endless, b'{"text": "caf\xe9"}', b'{"text": "cut', b""]))
    _, docs, _, rejects = make(tokenizer, chosen(share=0.0))
    assert [(row["row"], row["reason"]) for row in rejects] == [(61, "too_long"), (62, "not_utf8"), (63, "bad_json")]
    assert sorted(joined(docs).values()) == sorted(GOOD)


def test_a_page_of_10_000_nested_templates_is_a_named_reject(tokenizer: Path) -> None:
    pages = [(i, f"P{i}", text) for i, text in enumerate(GOOD)]
    write_wikipedia([*pages[:30], (900, "Nested", NESTED), *pages[30:]])
    _, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert [(row["row"], row["reason"]) for row in rejects] == [(900, "bad_wikitext")]
    assert set(joined(docs)) == {str(i) for i in range(60)}


def test_xml_that_stops_within_whole_bz2_is_an_error_that_names_the_page_before(tokenizer: Path) -> None:
    path = write_wikipedia([(i, f"P{i}", text) for i, text in enumerate(GOOD)])
    xml = bz2.decompress(path.read_bytes())
    path.write_bytes(bz2.compress(xml[: xml.index(b"<title>P31</title>") + 40]))
    with pytest.raises(LongtailError, match=r"dump\.xml\.bz2: corrupt after the page 30 \(P30\)"):
        make(tokenizer, chosen(share=0.0), "wikipedia")
    assert not Path("out").exists()


@pytest.mark.parametrize("checksum", [True, False])
def test_a_broken_zstd_frame_is_an_error_wherever_it_is(tokenizer: Path, checksum: bool) -> None:
    path = write_pile(GOOD)
    text = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    frame = zstandard.ZstdCompressor(write_checksum=checksum).compress(text)
    half = len(frame) // 2
    # Without a checksum a changed byte can pass for another text; a block's header that is no header can't.
    broken = frame[:-1] + bytes([frame[-1] ^ 1]) if checksum else frame[:half] + b"\xff" * 64 + frame[half + 64 :]
    path.write_bytes(frame + broken)
    with pytest.raises(LongtailError, match=r"00\.jsonl\.zst: corrupt, expected \.zst data"):
        make(tokenizer, chosen(share=0.0))
    assert not Path("out").exists()
