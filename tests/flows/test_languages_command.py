"""The same facts in the runs of several languages: joined by question id, judged each in its own, as a page."""

import csv

import adaptive_pairs
import numpy as np
import pytest
import yaml

from flows import profiles

N = 40


def project(folder, root, code, ids, right, views, method="closed_book"):
    """A project's params, questions and answers; `right` and `views` follow `ids`."""
    values = yaml.safe_load(profiles.compose("sample", root)) | {"language": code}
    values["parts"] |= {"question_sets": ["popqa"], "answered": ["popqa"]}
    adaptive_pairs.write_questions(
        folder / "data/questions/popqa/popqa.parquet", ids, views, s_uri=ids, subj=ids
    )
    adaptive_pairs.write_answers(
        folder / f"data/predictions/popqa/tiny/{method}.parquet", ids, right
    )
    (folder / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


@pytest.fixture
def made(tmp_path, root, monkeypatch):
    """The working folder. English asks about facts 0 to 39, German about 10 to 49 in another order."""
    english = [f"Q{i}-P17-Q1" for i in range(N)]
    project(
        tmp_path / "en",
        root,
        "en",
        english,
        [i % 2 == 0 for i in range(N)],
        [100 + i for i in range(N)],
    )
    order = np.random.default_rng(0).permutation(np.arange(10, 10 + N)).tolist()
    views = [None if i == 10 else 1000 - i for i in order]
    project(
        tmp_path / "de",
        root,
        "de",
        [f"Q{i}-P17-Q1" for i in order],
        [i % 3 == 0 for i in order],
        views,
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(folder, name):
    with (folder / "languages" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_only_shared_facts_count_and_each_language_has_its_own_accuracy(made, call):
    code, said, error = call("languages", "en", "de")
    assert (code, error) == (0, "")
    assert "30 facts that all languages ask about" in said
    rows = {row["language"]: row for row in table(made, "languages-tiny-closed_book")}
    shared = range(10, N)
    assert float(rows["English"]["accuracy"]) == pytest.approx(sum(i % 2 == 0 for i in shared) / 30)
    assert float(rows["German"]["accuracy"]) == pytest.approx(sum(i % 3 == 0 for i in shared) / 30)
    assert int(rows["English"]["only here"]) == sum(i % 2 == 0 and i % 3 != 0 for i in shared)
    assert float(rows["German"]["correlation with English"]) == pytest.approx(-1), (
        "the views run the other way"
    )
    assert float(rows["German"]["median views"]) == 1000 - 25
    page = (made / "languages/index.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 2, "a figure, wide and narrow"


def test_what_can_not_be_compared_is_named(made, call, root):
    project(made / "ja", root, "ja", ["Q9999-P17-Q1"], [True], [1])
    project(made / "fr", root, "fr", ["Q10-P17-Q1"], [True], [1], method="dense")
    for folders, said in (
        (["en"], "one project, expected two or more"),
        (["en", "en"], "a run in English as"),
        (["en", "ja"], "no question_id in common"),
        (["en", "fr"], "no language model and method answered popqa in all runs"),
    ):
        assert said in call("languages", *folders)[2]
    assert not (made / "languages").exists()
