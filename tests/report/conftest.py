"""The pages that a browser opens, and the tables and the report of a world with every effect."""

import shutil
from pathlib import Path

import hostile
import landed_runs
import pytest
import releases
import scored_texts
import small_results
import systems

from flows import anywhere, terminal
from pipelines.evaluation import analyse
from pipelines.release.difference import write_difference
from pipelines.replug import attribution
from pipelines.report import attribution_page, history_page, landed, moved, write_report


@pytest.fixture(scope="session")
def made(written):
    """The report on them: (folder, what was right by method)."""
    data, right = written
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data.parent)
        write_report.write_report(data, data.parent / "report", small_results.SETTINGS)
    return data.parent / "report", right


@pytest.fixture
def data(written, tmp_path, monkeypatch):
    """A copy of these tables, to change."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(written[0], tmp_path / "data")


@pytest.fixture(scope="module")
def files(root, written, tmp_path_factory, request):
    """The pages, by name; in a module with HOSTILE, they are made of labels that attack whoever shows them."""
    home, spoiled = tmp_path_factory.mktemp("pages"), getattr(request.module, "HOSTILE", False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        shutil.copytree(written[0], home / "data")
        shutil.copy(root / "dvc.yaml", home)
        if spoiled:
            hostile.spoil(home / "data")
            metrics = home / "data/metrics/analyses.json"
            analyse.analyse(home / "data", home / "data/analyses", metrics, small_results.SETTINGS)
        write_report.write_report(home / "data", home / "report", small_results.SETTINGS)
        _moved(home, hostile.LABELS[0] if spoiled else "release 1.0.0")
        patch.chdir(tmp_path_factory.mktemp("attribution"))
        params, _ = scored_texts.write(Path())
        for name, columns in {"docs": ("title", "text"), "queries": ("context",)}.items() if spoiled else ():
            hostile.replace(Path(f"data/corpus/pile/{name}.parquet"), *columns)
        attribution.attribute(params, "pile")
        attribution_page.write(Path("data"), "pile", "tiny", home / "attribution.html")
        patch.setattr(terminal, "CALLED_FROM", home)
        patch.chdir(home)
        closed, *others = _predictions(home, spoiled)
        anywhere.thresholds(closed, others, "popQA.tsv")
        anywhere.compare([closed, *others], "popQA.tsv")
        _history(home, hostile.LABELS[0] if spoiled else "sample")
    popqa = {"old": releases.questions([(1, 20), (2, 21)], {1: 900, 2: 40})}
    popqa["new"] = releases.questions([(1, 20), (2, 21), (3, 20)], {1: 9, 2: 4000, 3: 5}, "2022-10")
    old, new = (releases.write_data(home / name, rows) / "questions/popqa" for name, rows in popqa.items())
    write_difference(old, new, home / "difference", ingest=releases.INGEST, threads=1)
    folders = ("report", "moved", "history", "thresholds", "comparison", "difference")
    return {"attribution": home / "attribution.html"} | {name: home / name / "index.html" for name in folders}


def _moved(home: Path, name: str) -> None:
    """The report against one in which BM25 and dense are swapped, and two figures."""
    old = shutil.copytree(home / "data", home / "old")
    shutil.copytree(home / "report", old / "report")
    figures = old / "report/figures"
    shutil.copy(figures / "accuracy-by-log-popularity-popqa.svg", figures / "accuracy-by-popularity-popqa.svg")
    (figures / "whose-page-popqa.svg").write_text((figures / "whose-page-popqa-word.svg").read_text())
    for method, other in (("bm25", "dense"), ("dense", "bm25")):
        shutil.copy(
            home / f"data/predictions/popqa/tiny/{method}.parquet", old / f"predictions/popqa/tiny/{other}.parquet"
        )
    list(moved.compare(old, name, home / "data", home / "moved", small_results.SETTINGS))


def _history(home: Path, profile: str) -> None:
    """Three months of this profile, whose closed-book answers got better, and one of another."""
    made = landed.figures({Path("data/analyses"), Path("data/metrics"), Path("data/adaptive")}, small_results.SETTINGS)
    closed = "accuracy/substring/popqa/tiny/closed_book"
    runs = [
        landed_runs.landing(f"2026-0{month}", made | {closed: landed_runs.share(0.1 * month)}, profile=profile)
        for month in (1, 2, 3)
    ]
    other = landed_runs.landing("2026-01", landed_runs.figures(), profile="another")
    list(history_page.write([*runs, other], profile, home / "history"))


def _predictions(home: Path, spoiled: bool) -> list[str]:
    """Files of predictions for popQA.tsv, the closed-book one first."""
    made = systems.make()
    if spoiled:
        for i, row in enumerate(made.rows):
            text = hostile.LABELS[i % len(hostile.LABELS)]
            row |= {"question": f"{text} {i}", "subj": text, "prop": hostile.LABELS[i % 3]}
    systems.popqa(home / "popQA.tsv", made)
    others = ["=HYPERLINK(1)<b>"] if spoiled else ["bm25", "contriever-msmarco", "self_rag_llama2_7b", "search-r1"]
    names = [f"{name}.csv" for name in ("closed", *others)]
    for name in names:
        right = made.closed if name == "closed.csv" else made.augmented
        (home / name).write_text(systems.plain(made, right), encoding="utf-8")
    return names
