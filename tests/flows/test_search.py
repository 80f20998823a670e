"""`longtail search`, called as people and scripts call it."""

import json
import os
import re
import shutil
import subprocess
import sys

import hostile
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows import cli
from pipelines import params, params_file
from pipelines.retrieval import bm25_build

TEXTS = ["Velm is the capital of Norland. " * 20, "Mira Tosh was born in Velm.", "A harbour in the north, 港, \x1b[2J."]


def indexed(folder, monkeypatch, root, titles, texts):
    """Make `folder` a project that has one index: BM25 over Wikipedia."""
    (folder / "conf").mkdir()
    for name in ("params.yaml", "dvc.yaml", "conf/config.yaml"):
        shutil.copy(root / name, folder / name)
    monkeypatch.chdir(folder)
    docs = folder / "data/corpus/wikipedia/docs.parquet"
    docs.parent.mkdir(parents=True)
    ids = [f"wikipedia:{number}:0" for number in range(1, len(texts) + 1)]
    pq.write_table(pa.table({"id": ids, "title": titles, "text": texts}), docs)
    compute = params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu")
    settings = params_file.load("index").index
    bm25_build.build(docs, folder / "data/index/bm25/wikipedia", settings, compute, "test")


@pytest.fixture
def hostile_index(tmp_path, monkeypatch, root):
    texts = [f"{label} harbour {label}" for label in hostile.LABELS]
    indexed(tmp_path, monkeypatch, root, hostile.LABELS, texts)
    return tmp_path


@pytest.fixture
def longtail(tmp_path, monkeypatch, capsys, root):
    """The command in such a project. Gives exit code, output and errors."""
    titles = ["Velm", "Mira Tosh, an author whose name is so long that it does not fit into one line", None]
    indexed(tmp_path, monkeypatch, root, titles, TEXTS)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["longtail", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    return call


def test_the_best_documents_with_scores_and_titles_on_80_columns(longtail):
    code, said, _ = longtail("search", "born in Velm", "--retriever", "bm25")
    lines = said.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:1] == ["1"]
    assert "Mira Tosh, an author" in lines[0]
    assert "[wikipedia:2:0]" in lines[1]
    assert lines[2].strip() == TEXTS[1]
    assert lines[3].split()[::2] == ["2", "Velm"]
    assert float(lines[0].split()[1]) > float(lines[3].split()[1]) > 0
    assert said.endswith(" …\n")  # of a long text, the beginning
    assert len(lines) == 8  # the third document has none of the words


def test_a_search_by_words_imports_no_library_that_takes_longer_than_it(longtail):
    command = "import sys; from flows import cli; sys.argv[1:] = ['search', 'Velm', '--retriever', 'bm25']"
    code = f"{command}\ntry:\n    cli.main()\nfinally:\n    print({{'pandas', 'torch', 'faiss'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Velm is the capital" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"


def test_control_characters_of_a_document_do_not_reach_the_terminal(longtail):
    _, said, _ = longtail("search", "harbour", "--retriever", "bm25")
    assert "A harbour in the north, 港, \ufffd[2J." in said


def test_json_for_scripts(longtail):
    code, said, _ = longtail("search", "港", "--retriever", "bm25", "--json", "-k", "1")
    (hit,) = json.loads(said)
    assert code == 0
    assert {name: hit[name] for name in ("id", "title", "text")} == {
        "id": "wikipedia:3:0",
        "title": "",
        "text": TEXTS[2],
    }
    assert hit["score"] > 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["Velm", "--retriever", "dense"],
            1,
            "data/index/dense/dense/wikipedia: no such index; `longtail run` makes it; ",
        ),
        (["Velm", "--retriever", "hybrid"], 1, "data/index/dense/dense/wikipedia: no such index; "),
        (["Velm", "--corpus", "wikitext"], 1, "there are wikipedia by bm25\n"),
        ([" ", "--retriever", "bm25"], 1, "error: the text is empty"),
        (["zzz", "--retriever", "bm25"], 1, "error: no document of wikipedia has a word of 'zzz'"),
        (["zzz " * 1000, "--retriever", "bm25"], 1, "has a word of 'zzz zzz"),
        (["\udcff", "--retriever", "bm25"], 1, "has a word of '?'"),
        (["Velm", "--corpus", "books"], 2, "'books' is not one of"),
        (["Velm", "-k", "0"], 2, "greater than or equal to 1"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line_with_an_exit_code(longtail, words, code, said):
    ended, out, err = longtail("search", *words)
    assert (ended, out) == (code, "")
    assert said in err
    if code == 1:
        assert err.count("\n") == 1 + err.count("shard]")
        assert len(err.splitlines()[-1]) < 200


def test_documents_that_are_gone_are_named(longtail, tmp_path):
    (tmp_path / "data/corpus/wikipedia/docs.parquet").unlink()
    code, _, err = longtail("search", "Velm", "--retriever", "bm25")
    assert code == 1
    assert "docs.parquet: no such file" in err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_hostile_titles_and_texts_are_harmless_on_any_terminal(hostile_index, words, encoding, root):
    """In a process of its own, whose output is bytes."""
    command = [sys.executable, "-m", "flows.cli", "search", "harbour", "--retriever", "bm25", "-k", "99", *words]
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=hostile_index, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode(encoding)
    assert not re.search(hostile.STEERING, said)
    if words and encoding == "utf-8":
        assert {hit["title"] for hit in json.loads(said)} == set(hostile.LABELS)
