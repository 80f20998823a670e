"""The tables of published answers, of small files that a local server has under the repositories'
paths.
"""

import csv
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks import budget_costs, published_answers
from benchmarks.published_answers import ADARAGUE, KNOWING, MODELS, POPQA, PREDICTIONS, SETS

QUESTIONS = 40
GOLD = "April 21 , 2000"  # as tokenised sets have it
RIGHT = "It was on april 21, 2000."


def save(folder, path, *records):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


def answers(right):
    """By id, right for the first so many questions where `right` is a number, or as it says."""
    if isinstance(right, int):
        right = [i < right for i in range(QUESTIONS)]
    return {f"q{i}": RIGHT if is_right else "2001" for i, is_right in enumerate(right)}


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A folder as the repositories have it. Retrieving mends the last half of the questions and
    spoils the first, and the doubts tell which.
    """
    monkeypatch.setattr(published_answers, "RESAMPLES", 20)
    folder = tmp_path / "published"
    known = [i < QUESTIONS // 2 for i in range(QUESTIONS)]
    mended = [not is_known for is_known in known]
    for name in SETS:
        for side, rights in (
            ("dev", {"never": 0, "once": 30, "several times": 10}),
            ("test", {"never": known, "once": mended, "several times": QUESTIONS}),
        ):
            for way, right in rights.items():
                path = published_answers.WAYS[way].format(name)
                path = published_answers.SIDES[side].format(path, name, name)
                path = f"{PREDICTIONS}/{path}_subsampled.json"
                save(folder, path.format("prediction"), answers(right))
                golds = {f"q{i}": [GOLD] for i in range(QUESTIONS)}
                save(folder, path.format("ground_truth"), golds)

        for epochs in published_answers.EPOCHS:
            options = {
                id_: {"prediction": text, "stepNum": 2 * (id_ > "q2"), "probas": f"0.{50 - i},0,0"}
                for i, (id_, text) in enumerate(answers(33).items())
            }
            path = published_answers.CLASSIFIER.format(epochs, name)
            save(folder, f"{path}/{name}_option.json", options)
            save(folder, f"{path}/{name}_option_with_probas.json", options)
            save(folder, f"{path}/eval_metic_result_acc.json", {"acc": 0.9})

    for name in published_answers.DOUBT_FILES.values():
        doubts = [dict.fromkeys(published_answers.DOUBTS, i - 20) for i in range(QUESTIONS)]
        save(folder, f"{ADARAGUE}/SeaKR/results/outputs_{name}_ours_3_1/direct.jsonl", *doubts)
    for name in published_answers.SEAKR_FILES.values():
        lines = [
            {"qid": id_, "Final Answer": text, "Retrieval Times": 1}
            for id_, text in answers(10).items()
        ]
        save(folder, f"{ADARAGUE}/SeaKR/results/{name}_3_1/results.jsonl", *lines[::-1])

    asked = [{"q": f"q{i}", "pop": 10 ** (1 + i // 20)} for i in range(QUESTIONS)]
    for model in MODELS:
        lines = [line | {"correct": i >= 30} for i, line in enumerate(asked)]
        save(folder, f"{KNOWING}{model}.jsonl", *lines)
    rows = [f"{line['q']}\t{line['pop']}\tQ{i}" for i, line in enumerate(asked)]
    (folder / POPQA).parent.mkdir(parents=True)
    (folder / POPQA).write_text("\n".join(["question\ts_pop\ts_uri", *rows]), encoding="utf-8")
    return folder


@pytest.fixture
def served(published, monkeypatch):
    """The address of a server of these files."""
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *said: None)
    handler = partial(SimpleHTTPRequestHandler, directory=published)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def values(table, *columns):
    """Columns of a table, the figures without their intervals."""
    places = [table.head.index(column) for column in columns]
    return [tuple(row[place].partition(" [")[0] for place in places) for row in table.rows]


def test_published_answers_are_judged_held_out(served, tmp_path):
    files = published_answers.Files(served, tmp_path / "kept")
    popularity, thresholds, systems = published_answers.tables(files)

    of_model = values(popularity, "views", "questions", "accuracy")[:3]
    expected = [("all", "40", "25.0"), ("10 to 99", "20", "0.0"), ("100 to 999", "20", "50.0")]
    assert of_model == expected
    assert len(popularity.rows) == 3 * len(MODELS)
    # half of 20, and none of 20: 10 / sqrt(20 * 20 * 30 * 10 / 40 / 40 * 40)
    assert popularity.rows[0][-1].startswith("+0.58 [")

    assert len(thresholds.rows) == 3 * 4 + 3 * 2
    fields = ("never", "always", "threshold", "retrieves", "advised")
    for row in values(thresholds, *fields)[:12]:
        assert row[:2] == ("50.0", "50.0")
        assert float(row[2]) > 90
        assert row[4] == "adaptive retrieval"
    assert values(thresholds, "retrieving", "always less never")[-1] == ("several times", "+50.0")

    fields = ("accuracy", "retrieves", "less retrieving once", "best way on dev")
    fields += ("less the best way on dev",)
    by_system = {(row[0], row[1]): row for row in systems.rows}
    assert len(by_system) == len(SETS) * 2 + 3
    rows = dict(zip(by_system, values(systems, *fields), strict=True))
    # q0, q1, q10 to q19 and q2 do not retrieve; on dev, retrieving once is best
    assert rows["nq", "Adaptive-RAG, 15 epochs"] == ("82.5", "67.5", "+32.5", "once", "+32.5")
    assert rows["musique", "SeaKR"] == (
        "25.0",
        "100.0",
        "\N{MINUS SIGN}25.0",
        "once",
        "\N{MINUS SIGN}25.0",
    )


def test_files_are_fetched_once(served, published, tmp_path):
    """A commit's files do not change."""
    files = published_answers.Files(served, tmp_path / "kept")
    first = files.text(POPQA)
    (published / POPQA).write_text("other", encoding="utf-8")
    assert files.text(POPQA) == first
    assert published_answers.Files(served, tmp_path / "anew").text(POPQA) == "other"


def test_the_table_of_budgets_has_the_examples_figures(root):
    table = (root / "docs/measured/tables/budgets.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(table.splitlines()))
    assert rows[0] == budget_costs.HEAD
    assert budget_costs.of_example(0.3) in rows
