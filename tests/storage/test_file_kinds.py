"""What stands in a file's place is refused in one line by what it is, with what to do; what is data
is not."""

import io
import json
import os
import pickle
import re
import sqlite3
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.foreign.prediction_files import read_predictions
from pipelines.sources import streams
from pipelines.storage import parquet
from pipelines.storage.file_kinds import check_stand_in

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 4523987\n"
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'
TABLE = pa.table({"id": ["1"], "pred": ["a"]})
STAND_INS = {
    "LFS": (LFS, "a Git LFS pointer, expected data; run git lfs pull"),
    "LFS with an extension": (LFS.replace(b"oid", b"ext-0-x sha256:ab\noid", 1), "a Git LFS pointer"),
    "LFS of Windows": (LFS.replace(b"\n", b"\r\n"), "a Git LFS pointer"),
    "LFS in its first version": (LFS.replace(b"git-lfs", b"hawser"), "a Git LFS pointer"),
    "annex": (b"/annex/objects/SHA256E-s4--ab.csv\n", "a git-annex pointer, .*run git annex get"),
    "annex' link as a text": (b"../.git/annex/objects/aa/b/SHA1-s1--c/SHA1-s1--c", "a git-annex pointer"),
    "dvc": (b"outs:\n- md5: ab\n  size: 3\n  hash: md5\n  path: a.csv\n", "a .dvc file, .*run dvc pull"),
    "dvc's import": (b"md5: ab\nfrozen: true\ndeps:\n- path: a\n  repo:\n    url: x\n", "a .dvc file, .*run dvc pull"),
    "S3": (XML + b"<Error><Code>AccessDenied</Code></Error>", "a server's error page"),
    "Azure": (b"\xef\xbb\xbf" + XML + b"<Error><Code>BlobNotFound</Code></Error>", "a server's error page"),
    "XHTML": (XML + b"<!DOCTYPE html><html/>", "an HTML page"),
}  # fmt: skip


def written(write) -> bytes:
    write(out := io.BytesIO())
    return out.getvalue()


def stream() -> bytes:
    with pa.ipc.new_stream(out := io.BytesIO(), TABLE.schema) as file:
        file.write_table(TABLE)
    return out.getvalue()


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE a(b)")
    return connection.serialize()


def archive() -> bytes:
    with tarfile.open(fileobj=(out := io.BytesIO()), mode="w") as file:
        member = tarfile.TarInfo("a.csv")
        member.size = 3
        file.addfile(member, io.BytesIO(b"a\n1"))
    return out.getvalue()


CONVERTS = "iconv -f {} -t utf-8 a.jsonl > utf8-a.jsonl"
FORMATS = {
    "Excel": (lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "an Office file .*save it as CSV"),
    "SQLite": (database, "an SQLite database, .*sqlite3 -header -csv a.jsonl"),
    "Feather": (lambda: written(lambda out: pyarrow.feather.write_feather(TABLE, out)), "an Arrow file, .*Parquet"),
    "datasets' Arrow": (stream, "an Arrow file, .*Parquet"),
    "pickle": (lambda: pickle.dumps([1]), "a pickle"),
    "NumPy": (lambda: written(lambda out: np.save(out, [1])), "a file of NumPy, "),
    "ORC": (lambda: b"ORC\n\x07\x12\x05\x08\xa0\x01\x18P", "a file of NumPy, .*, ORC"),
    "other XML": (lambda: XML + b"<results/>", "an XML file"),
    "7z": (lambda: b"7z\xbc\xaf\x27\x1c\0", "an archive, .*unpack it"),
    "RAR": (lambda: b"Rar!\x1a\x07\x01\0", "an archive, .*unpack it"),
    "tar": (archive, "an archive, .*unpack it"),
    "UTF-16 alone": (lambda: "id\n1".encode("utf-16le"), "UTF-16 without its mark, .*" + CONVERTS.format("utf-16le")),
    "UTF-16, big": (lambda: "id\n1".encode("utf-16be"), "UTF-16 without its mark, .*" + CONVERTS.format("utf-16be")),
}  # fmt: skip


def refused(read, path, said: str) -> None:
    with pytest.raises(LongtailError, match=rf"^\S*{path.name}: .*{said}") as error:
        read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", STAND_INS)
def test_what_stands_in_a_files_place_is_refused_by_every_reader(tmp_path, name):
    data, said = STAND_INS[name]
    for read, file in [
        (read_predictions, "a.jsonl"),
        (streams.check_start, "popQA.tsv"),
        (check_stand_in, "model.safetensors"),
        (parquet.read_parquet, "a.parquet"),
        (parquet.schema_of, "b.parquet"),
    ]:
        (tmp_path / file).write_bytes(data)
        refused(read, tmp_path / file, said)


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_or_encoding_is_refused_by_what_it_is(tmp_path, name):
    make, said = FORMATS[name]
    path = tmp_path / "a.jsonl"
    path.write_bytes(make())
    refused(read_predictions, path, said)
    assert check_stand_in(path) is None, "a model's weights are no pointer"


def test_a_link_to_nothing_says_where_the_file_should_be(tmp_path):
    for target, said in [
        ("../../blobs/ab", r"a link to \.\./\.\./blobs/ab, which is not here"),
        (".git/annex/objects/aa/SHA1-s1--b", "run git annex get"),
    ]:
        (path := tmp_path / "a.csv").symlink_to(target)
        refused(streams.check_start, path, said)
        refused(check_stand_in, path, said)
        refused(parquet.read_parquet, path, said)
        path.unlink()


def test_a_pipe_is_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "63")
    for read in (streams.check_start, parquet.read_parquet, check_stand_in):
        refused(read, tmp_path / "63", "a pipe, .*; write it into a file")


def test_texts_that_begin_alike_are_data(tmp_path):
    for text in (
        "ORCHIDS are flowers\nPAREIDOLIA", "PARENTS\nno", "version https://x.org/ is right\nyes", "Not found in it\nno",
        "not found\nforbidden", "outs: three\nno", "7zip\nno", "FEA1 is a course\nno", "a.csv\n.git/annex/objects/a",
        "<Errors> are many\nno", "%PDF\nno", "GGUF files\nno", "Obj 1\nno", "BZip2\nno", "PK\nno", "]\nno",
    ):  # fmt: skip
        (tmp_path / "a").write_text(text, encoding="utf-8")
        assert list(streams.open_text(tmp_path / "a")) == text.split("\n")
    for record in (
        {"error": None, "id": 1, "prediction": "a"},
        {"message": "a", "prediction": "a"},
    ):
        (tmp_path / "a").write_text(json.dumps(record), encoding="utf-8")
        assert read_predictions(tmp_path / "a").texts == ["a"]
    pq.write_table(TABLE, tmp_path / "a")
    assert read_predictions(tmp_path / "a").texts == ["a"]
    assert re.match("Parquet", read_predictions(tmp_path / "a").layout)
