"""MMLU and open-domain QA: what is asked and shown, of the files as they are published; the
prompts."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmark_files import CHOSEN, read

from pipelines.errors import LongtailError
from pipelines.evaluation import task_figures, task_items
from pipelines.evaluation.task_items import CATEGORIES, Item
from pipelines.params import params
from pipelines.questions import matching
from pipelines.sources.rejects import Rejects


def test_mmlus_demonstrations_are_the_first_of_dev(raw):
    task = read(raw, "mmlu")
    assert len(task.items) == 40
    assert [item.query for item in task.shots["virology"]] == [
        "Which, virology dev 0?",
        "Which, virology dev 1?",
    ]
    shown = (raw / "mmlu/dev/virology_dev.csv").read_text().splitlines(keepends=True)[:2]
    for subject in ("virology", "formal_logic"):  # the latter shows others
        with (raw / f"mmlu/test/{subject}_test.csv").open("a") as out:
            out.write("".join(shown))
    items = read(raw, "mmlu", CHOSEN.model_copy(update={"max_questions": 100})).items
    assert [item.id for item in items if "virology dev" in item.query] == ["formal_logic/test/31"]
    assert len(items) == 61


def test_open_questions_are_shown_from_the_training_file(raw):
    """What is shown is not asked in any spelling."""
    with (raw / "nq/test.jsonl").open("a") as out:
        out.write(
            "".join(
                json.dumps({"question": f"WHO was {i}", "answer": "x"}) + "\n" for i in range(20)
            )
        )
    task = read(raw, "nq")
    assert len(task.shots[""]) == 3
    assert {item.query.rpartition(" ")[0] for item in task.shots[""]} == {"who was"}
    assert len(task.items) == 40 - 3
    assert {item.query.rpartition(" ")[0] for item in task.items} == {"who is", "WHO was"}
    assert not {item.query.lower() for item in task.items} & {
        item.query.lower() for item in task.shots[""]
    }


def test_a_missing_training_file_is_named(raw):
    shutil.rmtree(raw / "nq/train")
    with pytest.raises(
        LongtailError,
        match=r"tasks\.qa_shots is 3, .*nq/train has no file.*fetch\.files as nq/train",
    ):
        read(raw, "nq")
    task = read(raw, "nq", CHOSEN.model_copy(update={"qa_shots": 0}))
    assert len(task.items) == 20
    assert task_figures.share_in_training(task) == {}, "what training asks is not known"


def test_mmlu_is_searched_with_its_options_or_without(raw):
    settings = CHOSEN.model_copy(update={"mmlu_query": "question_and_options"})
    with_options, without = read(raw, "mmlu", settings).items[0], read(raw, "mmlu").items[0]
    assert with_options.query == f"{without.query}\nA. one\nB. two\nC. th\nree\nD. four"
    assert with_options.body == without.body == f"Question: {with_options.query}\nAnswer:"


def test_a_task_without_data_has_no_items(raw):
    for name in ("mmlu", "nq"):
        ids = [item.id for item in read(raw, name).items]
        assert ids == sorted(set(ids)) != []
    (raw / "mmlu/test").rename(raw / "elsewhere")
    assert [read(raw, name).items for name in ("mmlu", "triviaqa")] == [[], []]


def test_prompts_show_the_first_answer():
    """They show no knowledge where fewer documents were found."""
    item = Item("1", "", "who", "Question: who\nAnswer:", ["Number 1", "the one"])
    assert task_items.demonstration(item, None) == "Question: who\nAnswer: Number 1\n\n"
    with_one, without = task_items.prompts([item], [[]], [["known", ""]])
    assert with_one.document + with_one.context == "Knowledge: known\nQuestion: who\nAnswer:"
    assert without.document + without.context == "Question: who\nAnswer:"


CHOICES = ["one", "two", "th\nree", "4"]
ROWS = [  # of two subjects, in turn
    {"subject": subject, "question": f"Which, {subject} {i}?", "choices": CHOICES, "answer": i % 4}
    for i in range(5)
    for subject in ("virology", "formal_logic")
]


def write(folder: Path, layout: str, rows: list[dict] = ROWS) -> Path:
    (folder / "test").mkdir(parents=True)
    if layout == "csv":
        for row in rows:
            quoted = ",".join(
                f'"{cell}"' for cell in (row["question"], *row["choices"], "ABCD"[row["answer"]])
            )
            with (folder / f"test/{row['subject']}_test.csv").open("a") as out:
                out.write(quoted + "\n")
    elif layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), folder / "test/test-00000-of-00001.parquet")
    else:
        lettered = [row | {"answer": "ABCD"[row["answer"]]} for row in rows]
        (folder / "test/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lettered))
    return folder


def test_mmlu_has_57_subjects_in_four_categories():
    assert len(CATEGORIES) == 57
    assert Counter(CATEGORIES.values()) == {
        "STEM": 18,
        "humanities": 13,
        "social sciences": 12,
        "other": 14,
    }


@pytest.mark.parametrize("layout", ["csv", "parquet", "jsonl"])
def test_rows_of_every_layout_become_the_same_prompts(tmp_path, layout):
    """The query leaves the options out."""
    rejects = Rejects(0)
    items = {
        item.id: item for item in task_items.read_split(write(tmp_path, layout), "test", rejects)
    }
    assert sorted(items) == [
        f"{s}/test/{i}" for s in ("formal_logic", "virology") for i in range(1, 6)
    ]
    third = items["virology/test/3"]
    assert (third.subject, third.query, third.answers) == ("virology", "Which, virology 2?", ["C"])
    assert third.body == "Question: Which, virology 2?\nA. one\nB. two\nC. th\nree\nD. 4\nAnswer:"
    assert task_items.demonstration(third, "Doc.") == f"Knowledge: Doc.\n{third.body} C\n\n"
    assert rejects.read == 10


def test_a_bad_record_is_named_and_moves_no_other_question(tmp_path):
    (tmp_path / "test").mkdir()
    for change in (
        *({"answer": answer} for answer in (4, True, None, "AB")),
        *({"choices": choices} for choices in (["a", "b", "c"], ["a", " ", "c", "d"], None)),
        {"question": 7},
        {"subject": "cookery"},
    ):
        (tmp_path / "test/all.json").write_text(json.dumps([ROWS[0] | change, ROWS[2]]))
        rejects = Rejects(1)
        places = {item.query: item.id for item in task_items.read_split(tmp_path, "test", rejects)}
        assert rejects.reasons() == {
            "no question of a subject of MMLU with 4 options and a letter": 1
        }
        assert rejects.rows[0][:2] == ("all.json", 1)
        assert places == {"Which, virology 1?": f"virology/test/{1 if 'subject' in change else 2}"}


def test_of_all_beside_subjects_each_question_counts_once(tmp_path, capsys):
    """Ids are those of the subjects' files, which need no column of subjects."""
    folder = tmp_path / "test"
    twice = [*ROWS, ROWS[0]]  # as the published set asks some questions twice
    for place in ("all", "formal_logic", "virology"):
        rows = [row for row in twice if place in ("all", row["subject"])]
        if place == "virology":
            rows = [{name: row[name] for name in row if name != "subject"} for row in rows]
        (folder / place).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / place / "test-00000-of-00001.parquet")
    same_in_another = ROWS[0] | {"subject": "anatomy"}
    (folder / "anatomy").mkdir()
    pq.write_table(pa.Table.from_pylist([same_in_another]), folder / "anatomy/test.parquet")
    rejects = Rejects(0)
    items = task_items.read_split(tmp_path, "test", rejects)
    assert sorted(item.id for item in items) == [
        "anatomy/test/1",
        *(f"formal_logic/test/{i}" for i in range(1, 6)),
        *(f"virology/test/{i}" for i in range(1, 7)),
    ]
    assert rejects.skipped == {"repeated_record": 11}
    said = f"11 records of {folder}/all/test-00000-of-00001.parquet were read before"
    assert said in capsys.readouterr().out


def test_a_file_that_does_not_fit_is_named(tmp_path):
    folder = write(tmp_path, "csv") / "test"
    for name, content, said in (
        ("all.jsonl", json.dumps(ROWS[0]), "has .csv and other files, expected one layout"),
        ("anatomy_test.tsv", "x", "has .csv and other files, expected one layout"),
    ):
        (folder / name).write_text(content)
        with pytest.raises(LongtailError, match=said):
            task_items.read_split(tmp_path, "test", Rejects(1))
        (folder / name).unlink()


def test_all_questions_of_the_real_files_are_asked(real, tmp_path):
    """Natural Questions lends TriviaQA's."""
    chosen = params.Tasks(
        max_questions=20_000, mmlu_query="question", mmlu_shots=5, qa_shots=16, new_tokens=4
    )
    (tmp_path / "mmlu").symlink_to(real / "mmlu")
    nq, triviaqa = "flashrag_nq_test_1000.jsonl", "flashrag_triviaqa_test_1000.jsonl"
    for name, file, lent in (("nq", "NQ-open.dev.jsonl", triviaqa), ("triviaqa", triviaqa, nq)):
        (tmp_path / name / "train").mkdir(parents=True)
        (tmp_path / name / file).symlink_to(real / "qa" / file)
        (tmp_path / name / "train" / lent).symlink_to(real / "qa" / lent)
    of = read(tmp_path, "mmlu", chosen)
    assert len(of.items) == 14_042
    assert {item.subject for item in of.items} == {*CATEGORIES}
    assert {subject: len(items) for subject, items in of.shots.items()} == dict.fromkeys(
        CATEGORIES, 5
    )
    for name, asked in (("nq", 3_610), ("triviaqa", 1_000)):
        of = read(tmp_path, name, chosen)
        assert (len(of.items), len(of.shots[""])) == (asked, 16)
        assert not {item.query.casefold() for item in of.shots[""]} & {
            item.query.casefold() for item in of.items
        }
        # some answers are ")" or "*"
        assert all(
            matching.exact(f" {item.answers[-1].upper()} ", item.answers) for item in of.items
        )
