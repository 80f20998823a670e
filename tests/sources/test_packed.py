"""Files are unpacked and decoded by their content; what can't be is refused in a line that says
what to do.
"""

import io
import lzma
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from fetching import PACK

from pipelines.errors import LongtailError
from pipelines.safe_text import mended
from pipelines.sources.streams import (
    is_readable,
    open_blocks,
    open_escaped,
    open_lines,
    open_text,
    parse_whole,
)

LINES = b"first\n\nthird \xc3\xa9\nlast without newline"


def zipped(
    files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, password: bool = False
) -> bytes:
    with zipfile.ZipFile(out := io.BytesIO(), "w", method) as file:
        for name, data in files.items():
            file.writestr(name, data)
    data = bytearray(out.getvalue())
    if password:  # a flag of the file, before its data and in the list at the end
        data[6] |= 1
        data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def utf16(text: bytes, order: str) -> bytes:
    return ("\ufeff" + text.decode()).encode(f"utf-16{order}")


def written(folder: Path, data: bytes, name: str = "data.jsonl") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


READ = {
    "as it is": LINES,
    **{suffix: pack(LINES) for suffix, pack in PACK.items()},
    "two streams": PACK[".xz"](LINES[:9]) + PACK[".xz"](LINES[9:]) + bytes(8),
    "lzma alone": lzma.compress(LINES, lzma.FORMAT_ALONE),
    "a frame to be skipped": b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + PACK[".zst"](LINES),
    "a zip": zipped({"b.csv": LINES}),
    "a zip of macOS": zipped(
        {"__MACOSX/._a": b"x", "a/": b"", "a/.DS_Store": b"x", "a/b.csv": LINES}
    ),
    "a zip that packs nothing": zipped({"b.csv": LINES}, zipfile.ZIP_STORED),
    "UTF-8 with a mark": b"\xef\xbb\xbf" + LINES,
    "UTF-16, little": utf16(LINES, "le"),
    "UTF-16, big": utf16(LINES, "be"),
    "UTF-16, packed": PACK[".gz"](utf16(LINES, "le")),
}


@pytest.mark.parametrize(
    "name", ["data.jsonl", "data", "data.gz", "data.csv.zip", "data.xz", "data.txt"]
)
def test_a_files_content_says_how_it_is_packed_whatever_its_name(tmp_path: Path, name: str) -> None:
    for what, data in READ.items():
        assert list(open_lines(written(tmp_path, data, name))) == LINES.split(b"\n"), what


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (zipped({"a.csv": LINES})[:-30], "cut in the middle or corrupt, expected a complete .zip"),
        (zipped({"a.csv": LINES}, zipfile.ZIP_STORED).replace(b"third", b"Third", 1), "corrupt, .*Bad CRC"),
        (zipped({"a.csv": LINES, "b/c.csv": LINES}), r"a zip with 2 files \(a.csv, b/c.csv\), expected one; unpack it"),
        (zipped({"a/": b"", ".a": b"x"}), "a zip with no file"),
        (zipped({"a.csv": LINES}, password=True), "a complete .zip file without a password"),
        (zipped({"[Content_Types].xml": b"", "xl/workbook.xml": b""}), "an Excel workbook, .*save it as CSV"),
        (zipped({"archive/data.pkl": b"", "archive/version": b""}), "a PyTorch file"),
        (PACK[".gz"](PACK[".gz"](LINES)), r"\.gz data inside \.gz, .*unpack it first"),
        (zipped({"a.gz": PACK[".gz"](LINES)}), r"\.gz data inside \.zip, .*unpack it first"),
        (PACK[".xz"](b"PAR1" + LINES), r"Parquet data inside \.xz, .*unpack it first"),
        (b"PAR1" + LINES, "Parquet data, expected text"),
        (PACK[".gz"](b"x" * 257 + b"ustar" + LINES), "an archive, .*unpack it"),
        (PACK[".gz"](b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n"), "a Git LFS pointer"),
        (utf16(LINES, "le")[:-1], "damaged or cut, expected UTF-16"),
    ],
)  # fmt: skip
def test_what_cannot_be_unpacked_is_refused_in_a_line(
    tmp_path: Path, data: bytes, said: str
) -> None:
    with pytest.raises(LongtailError, match=rf"data\.jsonl: .*{said}") as error:
        list(open_lines(written(tmp_path, data)))
    assert "\n" not in str(error.value)


def test_a_bomb_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = written(tmp_path, zipped({"a.csv": b"x" * 50_000_000}))
    tracemalloc.start()
    assert sum(map(len, open_blocks(bomb))) == 50_000_000
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    monkeypatch.setattr("pipelines.sources.decompression.XZ_MEMORY", 1 << 20)
    with pytest.raises(LongtailError, match=r"corrupt, .*Memory usage limit"):
        list(open_lines(written(tmp_path, PACK[".xz"](LINES))))


@pytest.mark.parametrize(("line", "at"), [(b"bad\xff", 3), ("é soir".encode("cp1252"), 0)])
def test_bytes_that_are_no_utf8_name_the_line(tmp_path, line, at) -> None:
    said = r"data\.jsonl: line 2: not UTF-8 at byte {} .* iconv -f windows-1252 -t utf-8 data.jsonl > utf8-data.jsonl"
    with pytest.raises(LongtailError, match=said.format(at)):
        list(open_text(written(tmp_path, b"good\n" + line + b"\n")))


@pytest.mark.parametrize(
    "data", [b'["bad\xff", "good"]', b'["bad\\udcff", "good"]', b'["bad\\ud83d", "good"]']
)
def test_a_value_keeps_what_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    bad, good = parse_whole(written(tmp_path, data))
    assert not is_readable(bad)
    assert mended(bad) == "bad\ufffd"
    assert is_readable(good)


def test_half_a_pair_in_utf16_is_no_utf8(tmp_path: Path) -> None:
    half = "whole \U0001f600\nhalf \ud83d\nlast".encode("utf-16", "surrogatepass")
    whole_line, half_line, last_line = open_escaped(written(tmp_path, half))
    assert whole_line == "whole \U0001f600"
    assert not is_readable(half_line)
    assert last_line == "last"


def test_a_mark_at_the_start_of_a_line_is_left_out(tmp_path: Path) -> None:
    two_files = b"\xef\xbb\xbf1\n\xef\xbb\xbf2 \xef\xbb\xbf3\n"
    assert list(open_escaped(written(tmp_path, two_files))) == ["1", "2 \ufeff3"]
