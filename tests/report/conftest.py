"""The report of a world with every effect, and all pages that a browser opens."""

import shutil
from contextlib import chdir
from functools import partial
from pathlib import Path

import hostile
import pytest
import small_results
import systems
from once import once

from flows import terminal
from flows.commands import comparing, rules
from pipelines.evaluation import analyse
from pipelines.report import write_report


@pytest.fixture(scope="session")
def made(written, tmp_path_factory):
    """The report on `written`: (folder, what was right by method)."""
    data, right = written

    def make(home: Path) -> None:
        with chdir(data.parent):
            write_report.write_report(data, home / "report", small_results.SETTINGS)

    return once(tmp_path_factory, "reported", make) / "report", right


@pytest.fixture
def data(written, tmp_path, monkeypatch):
    """A copy of these tables, to change."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(written[0], tmp_path / "data")


@pytest.fixture(scope="session")
def files(root, written, tmp_path_factory):
    """The pages by name."""
    return _pages(
        once(tmp_path_factory, "pages", partial(_write_pages, root, written[0], spoilt=False))
    )


@pytest.fixture(scope="session")
def spoilt_files(root, written, tmp_path_factory):
    """The pages by name, made of labels that attack whoever shows them."""
    return _pages(
        once(tmp_path_factory, "spoilt_pages", partial(_write_pages, root, written[0], spoilt=True))
    )


def _write_pages(root: Path, written: Path, home: Path, *, spoilt: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        shutil.copytree(written, home / "data")
        shutil.copy(root / "dvc.yaml", home)
        if spoilt:
            hostile.spoil(home / "data")
            analyse.analyse(home / "data", small_results.SETTINGS)
        write_report.write_report(home / "data", home / "report", small_results.SETTINGS)
        patch.setattr(terminal, "CALLED_FROM", home)
        closed, *others = _predictions(home, spoilt)
        rules.thresholds(closed, others, "popQA.tsv")
        comparing.compare([closed, *others], "popQA.tsv")


def _pages(home: Path) -> dict[str, Path]:
    names = ("report", "thresholds", "comparison")
    pages = {name: home / name / "index.html" for name in names}
    return pages | {"details": home / "report/details.html"}


def _predictions(home: Path, spoilt: bool) -> list[str]:
    """Files of predictions for popQA.tsv, the closed-book one first."""
    made = systems.make()
    for i, row in enumerate(made.rows if spoilt else ()):
        text = hostile.LABELS[i % len(hostile.LABELS)]
        row |= {"question": f"{text} {i}", "subj": text, "prop": hostile.LABELS[i % 3]}
    systems.popqa(home / "popQA.tsv", made)
    others = (
        ["=HYPERLINK(1)<b>"]
        if spoilt
        else ["bm25", "contriever-msmarco", "self_rag_llama2_7b", "search-r1"]
    )
    names = [f"{name}.csv" for name in ("closed", *others)]
    for name in names:
        right = made.closed if name == "closed.csv" else made.augmented
        (home / name).write_text(systems.plain(made, right), encoding="utf-8")
    return names
