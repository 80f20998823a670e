"""Questions with passages are read from either layout, and bad lines are named."""

import json

from pipelines.sources.passage_questions import read_contexts
from pipelines.sources.rejects import Rejects


def read(folder, rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    rejects = Rejects(1.0)
    return list(read_contexts(folder, rejects)), rejects


def test_both_layouts_of_keys_and_of_passages(tmp_path):
    (one, other), rejects = read(
        tmp_path,
        [
            {
                "question": " Who? ",
                "answers": ["Mira", ""],
                "ctxs": [{"title": "T", "text": " a\n b "}, {"title": "x"}],
            },
            {"question": "What?", "data_source": "popqa", "ground_truth": ["x"], "context": ["plain", {"text": "c"}]},
        ],
    )
    assert one == ("a/1", "", "Who?", ["Mira"], [("T", "a b")])
    assert other == ("a/2", "popqa", "What?", ["x"], [("", "plain"), ("", "c")])
    assert (rejects.read, rejects.rows) == (2, [])


def test_bad_lines_are_named(tmp_path):
    good = {"question": "Who?", "answers": ["Mira"], "ctxs": ["Mira"]}
    rows = ["{", "[]", good | {"question": 3}, good | {"answers": "Mira"}, good | {"ctxs": [{"title": "x"}]}, good]
    found, rejects = read(tmp_path, rows)
    assert [one.id for one in found] == ["a/6"]
    reasons = ["not JSON", "no question", "no question", "no answers", "no passages"]
    assert [row[:3] for row in rejects.rows] == [("a.jsonl", n, reason) for n, reason in enumerate(reasons, 1)]


def test_the_real_questions(real):
    path = real / "wikipedia/retrievalqa_gpt4_250_with_contexts.jsonl"
    rejects = Rejects(1.0)
    found = [one for one in read_contexts(path.parent, rejects) if one.id.startswith(path.stem)]
    assert len(found) == 250
    assert {one.dataset for one in found} == {"realtimeqa", "freshqa", "toolqa", "popqa", "triviaqa"}
    assert max(len(one.passages) for one in found) == 25
