"""A column of predictions is the question by its values, whatever its name."""

import csv
import html
import json
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.questions.columns_by_value import read_known_by_value
from pipelines.questions.join_predictions import FOREIGN, Asked, join_predictions

pytestmark = pytest.mark.usefixtures("workplace")
N = 40
GOLDS = [["poet", "bard"], ["chemist"], ["painter", "limner"], ["judge"], ["diver"]]
QUESTIONS = [f"What is Ann {'x' * i}'s occupation?" for i in range(N)]
ANSWERS = [GOLDS[i * i % 5] for i in range(N)]
IDS = [4000000 + 37 * i for i in range(N)]
ASKED = Asked(QUESTIONS, ANSWERS, {"id": IDS})
OTHERS = [(place * 7 + 3) % N for place in range(N)]  # another question for each
ORDERS = {
    "order": [*range(N)],
    "shuffled": OTHERS,
    "subset": OTHERS[:25],
    "doubled": OTHERS * 2,
    "resumed": OTHERS[:30],
}
ORDERS["resumed"] = ORDERS["resumed"] + OTHERS[20:]
LAYOUTS = {  # tools and what their columns hold for a question: (place, question, gold answer) -> cells
    "ragas": lambda i, q, gold: {
        "user_input": q,
        "retrieved_contexts": ["a passage"],
        "reference": gold,
    },
    "deepeval": lambda i, q, gold: {"name": f"test_case_{i}", "input": q, "expected_output": gold},
    "trulens": lambda i, q, gold: {
        "record_id": f"record_hash_{i * 7}",
        "input": json.dumps(q),
        "app_id": "a",
    },
    "langsmith": lambda i, q, gold: {
        "id": f"{i * 977:032x}",
        "inputs": {"question": q},
        "reference": {"answer": gold},
    },
    "phoenix": lambda i, q, gold: {"context.span_id": f"{i:x}s", "attributes.input.value": q},
    "bergen": lambda i, q, gold: {
        "instruction": f"[INST] Is it a town?\n\nQuestion: {q} [/INST]",
        "label": [gold],
    },
    "vertex": lambda i, q, gold: {
        "prompt": f"Answer this: {q} Passage: a {gold}, {i}.",
        "reference": gold,
    },
    "few-shot": lambda i, q, gold: {
        "full_prompt": f"Q: {QUESTIONS[OTHERS[i]]}\nA: {gold}\n\nQ: {q}\nA:"
    },
    "chat": lambda i, q, gold: {
        "messages": [{"role": "system", "content": "Why?"}, {"role": "user", "content": q}]
    },
    "chat, written": lambda i, q, gold: {
        "messages": (str, json.dumps)[i % 2](
            [{"content": f"Question: {q}\nAnswer:", "role": "user"}]
        )
    },
    "promptfoo": lambda i, q, gold: {"vars": {"topic": q}, "success": True},
    "entities": lambda i, q, gold: {"Frage": f" {html.escape(q).upper()} \n"},
    "quotes": lambda i, q, gold: {"query_text": f"\u201c{q}\u201d".replace("'", "\u2019")},
    "question holds ids": lambda i, q, gold: {"question": f"q{i}", "asked": q.rstrip("?")},
    "rewritten": lambda i, q, gold: {"asked": q, "rewritten": q if i % 2 else f"so, {q}"},
    "one demonstration": lambda i, q, gold: {"demonstration": QUESTIONS[3], "asked": q},
}


def matched(records, kind="jsonl", asked=ASKED, **how):
    """What is read of a file of these records, and its match with the set."""
    path = Path(f"a.{kind}")
    if kind == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    elif kind == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, records[0])
            writer.writeheader()
            writer.writerows(records)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(records), path)
    read = read_known_by_value(path, asked)
    return read, join_predictions(read, asked, **how)


def written(layout, places):
    said = (lambda i: {"output": f"answer {i}"}) if layout == "promptfoo" else "answer {}".format
    return [LAYOUTS[layout](i, QUESTIONS[i], ANSWERS[i][0]) | {"response": said(i)} for i in places]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_evaluations_find_their_questions_in_whatever_order(layout):
    for places in ORDERS.values():
        read, match = matched(written(layout, places))
        assert [read.texts[row] for row in match.rows] == [
            f"answer {i}" for i in sorted(set(places))
        ]
        assert match.questions == sorted(set(places))
        assert (match.rejected, len(match.repeated)) == ({}, len(places) - len(set(places)))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("layout", ["ragas", "langsmith", "bergen", "chat"])
def test_other_formats_hold_the_same(kind, layout):
    _, match = matched(written(layout, OTHERS), kind)
    assert (match.questions, match.rejected) == ([*range(N)], {})
    assert not match.by.startswith("position")


def test_messages_hold_both_question_and_answer():
    roles = ("user", "assistant")
    messages = [
        [QUESTIONS[3], "no"],
        *([q, f"answer {i}"] for i, q in enumerate(QUESTIONS) if i != 3),
    ]
    spoken = [
        [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        for texts in messages
    ]
    read, match = matched([{"messages": texts} for texts in spoken])
    assert (match.questions, match.rejected) == ([*range(N)], {})
    assert [read.texts[row] for row in match.rows] == [
        f"answer {i}" if i != 3 else "no" for i in range(N)
    ]


def test_columns_that_are_known_by_value_are_named():
    read, _ = matched(written("ragas", OTHERS))
    assert read.described[1:] == ["`user_input` is the question, by its values"]
    assert "retrieved_contexts" not in read.cells
    read, _ = matched(written("bergen", OTHERS))
    assert read.described[1] == "`instruction` has the question, by its values"


def test_rows_whose_question_is_not_the_sets_are_left_out_by_name():
    records = [
        {"asked": q if i % 10 < 7 else f"in short, {q}", "pred": "x"}
        for i, q in enumerate(QUESTIONS)
    ]
    match = matched(records)[1]
    assert (len(match.rows), len(match.rejected[FOREIGN])) == (28, 12)
    larger = [{"asked": f"Who is nobody {i}?", "pred": "x"} for i in range(200)]
    assert matched(larger + records)[1].questions == match.questions


def test_two_columns_that_hold_different_questions_are_refused():
    records = [
        {"asked": q, "similar": QUESTIONS[OTHERS[i]], "pred": "x"} for i, q in enumerate(QUESTIONS)
    ]
    with pytest.raises(
        LongtailError, match=r"its columns asked and similar hold different questions .* `question`"
    ):
        matched(records)
    for number, record in enumerate(records):
        record["id"] = IDS[number]
    assert matched(records)[1].by == "id = id", "ids say which is meant"


REFUSED = {
    "retrieved questions": {"contexts": [f"Q: {QUESTIONS[i]} A: {ANSWERS[i][0]}" for i in OTHERS]},
    "demonstrations": {
        "prompt": [f"Q: {QUESTIONS[i]}\nA: x\n\nQ: And who is nobody {i}?\nA:" for i in OTHERS]
    },
    "unmarked demonstrations": {
        "prompt": [f"{QUESTIONS[i]} Or who is nobody {i}?" for i in OTHERS]
    },
    "unnamed numbers": {"number": OTHERS},
    "another model": {"baseline": [ANSWERS[i][0] if i % 3 else "judge" for i in range(N)]},
    "judged": {"correct": [i % 2 for i in range(N)]},
    "few answers": {"golds": [ANSWERS[i] if i < 15 else None for i in range(N)]},
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_position_that_nothing_confirms_has_to_be_asked_for(what):
    columns = REFUSED[what]
    records = [
        dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)
    ]
    records = records if what == "judged" else [record | {"pred": "x"} for record in records]
    with pytest.raises(
        LongtailError,
        match="nothing else confirms that its rows are in the set's order; add a column",
    ):
        matched(records)
    _, match = matched(records, by_position=True)
    assert (match.by, match.rows) == ("position, as --by-position says", [*range(N)])


PARTS = {  # what a set asks, and prompts that hold it within something else
    "demonstrations": ("name the craft of Ann {}", "Q: {}\nA: x\n\nQ: name another craft\nA:"),
    "longer questions": ("name the craft of Ann {}", "Q: {} Lee"),
    "names": ("Ann {}", "Who is this? {}"),
}


@pytest.mark.parametrize("what", PARTS)
def test_what_a_prompt_holds_is_not_always_what_it_asks(what):
    question, prompt = PARTS[what]
    asked = Asked([question.format("x" * i + "y") for i in range(N)], ANSWERS, {"id": IDS})
    with pytest.raises(LongtailError, match="nothing else confirms"):
        matched(
            [{"prompt": prompt.format(text), "pred": "x"} for text in asked.questions], asked=asked
        )
    alone = [{"prompt": f"Q: {text}\nA:", "pred": "x"} for text in asked.questions[::-1]]
    if what != "names":
        assert matched(alone, asked=asked)[1].questions == [*range(N)]


def test_some_questions_of_a_set_end_with_a_mark():
    asked = Asked([q.rstrip("?" * (i % 2)) for i, q in enumerate(QUESTIONS)], ANSWERS, {"id": IDS})
    records = [{"prompt": f"Text {i}\nQ: {asked.questions[i]}\nA:", "pred": "x"} for i in OTHERS]
    assert matched(records, asked=asked)[1].questions == [*range(N)]


def test_gold_answers_confirm_a_position_or_refute_it():
    records = [
        {"id": f"test_{i}", "golds": [gold[-1]], "pred": "x"} for i, gold in enumerate(ANSWERS)
    ]
    match = matched(records)[1]
    assert match.by == "position, as its answers confirm"
    for how in ({}, {"by_position": True}):
        with pytest.raises(
            LongtailError, match="row 1 has other answers in `golds` than the set's question 1"
        ):
            matched([records[i] for i in OTHERS], **how)
    alike = Asked(QUESTIONS, [["yes"]] * 21 + [["no"]] * 19, {"id": IDS})
    records = [{"golds": answers, "pred": "x"} for answers in alike.answers]
    with pytest.raises(
        LongtailError, match="nothing else confirms"
    ):  # rows could change places among the same answers
        matched(records, asked=alike)


def test_gold_answers_tell_questions_of_one_text_apart():
    doubled = Asked([*QUESTIONS[:-1], QUESTIONS[0]], [*ANSWERS[:-1], ["mason"]], {"id": IDS})
    records = [
        {"asked": q, "golds": a, "pred": f"p{i}"}
        for i, (q, a) in enumerate(zip(*[doubled.questions, doubled.answers], strict=True))
    ]
    read, match = matched(records[::-1], asked=doubled)
    assert [read.texts[row] for row in match.rows] == [f"p{i}" for i in range(N)]


def test_ids_that_may_number_rows_are_not_believed_against_questions_or_answers():
    numbered = Asked(QUESTIONS, ANSWERS, {"id": [*range(N)]})
    right = [{"id": i, "prompt": f"Q: {QUESTIONS[i]} A:", "pred": f"p{i}"} for i in OTHERS]
    assert matched(right, asked=numbered)[1].by == "id = id"
    for cells in (
        {"asked": [QUESTIONS[i] for i in OTHERS]},
        {"golds": [ANSWERS[i] for i in OTHERS]},
    ):
        ((name, values),) = cells.items()
        records = [{"id": row, name: value, "pred": "x"} for row, value in enumerate(values)]
        with pytest.raises(
            LongtailError, match=r"have the id of one question and .*; drop the ids if they"
        ):
            matched(records, asked=numbered)


def test_a_row_that_is_there_again_counts_once_and_one_that_differs_not_at_all():
    records = [{"asked": q, "pred": f"p{i}"} for i, q in enumerate(QUESTIONS)]
    read, match = matched([*records, *records[:3], records[0], records[5] | {"pred": "other"}])
    assert match.questions == [place for place in range(N) if place != 5]
    assert match.repeated == [40, 41, 42, 43]
    said = match.described(read)
    assert any(
        line.startswith("4 rows say again what an earlier row says, and count once: row 41 (")
        for line in said
    )
    assert any(
        line.startswith("2 rows answer a question that another row answers otherwise: row 6 (")
        for line in said
    )
