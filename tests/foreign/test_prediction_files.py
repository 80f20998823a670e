"""Predictions of other people's systems: every format of a table is read, and what is no table
is refused.
"""

import json
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from three_questions import GOLD, IDS, ROWS, SAID, lines, quoted, write

from pipelines.errors import LongtailError
from pipelines.foreign.prediction_files import read_predictions
from pipelines.foreign.prediction_texts import cut_answers


def as_quoted(delimiter, names=("id", "Prediction")):
    return quoted([names, *zip(IDS, SAID, strict=True)], delimiter)


PLAIN = "id\tpred\n" + "".join(f"{id_}\t{said}\n" for _, id_, _, _, said in ROWS)
RECORDS = [{"id": id_, "prediction": said} for _, id_, _, _, said in ROWS]
BY_NUMBER = [dict(zip("012", values, strict=True)) for values in (IDS, SAID)]
GENERIC = {
    "a.csv": (as_quoted(","), "CSV"),
    "semicolons.csv": (as_quoted(";"), "CSV with semicolons"),
    "bom.csv": (b"\xef\xbb\xbf" + as_quoted(",").encode(), "CSV"),
    "quoted.tsv": (as_quoted("\t"), "TSV"),
    "plain.tsv": (PLAIN, "TSV without quotes"),
    "blank_line.tsv": (f"{PLAIN}\n", "TSV without quotes"),
    "called.csv": (as_quoted("\t"), "TSV"),
    "packed.csv.gz": (as_quoted(","), "CSV"),
    "list.json": (RECORDS, "JSON list"),
    "columns.json": ({"id": IDS, "prediction": SAID}, "JSON object of columns"),
    "pandas.json": (dict(zip(("id", "prediction"), BY_NUMBER, strict=True)), "JSON object of columns"),
    "by_id.json": (dict(zip(IDS, SAID, strict=True)), "JSON object by id"),
    "objects.json": ({id_: {"prediction": said, "score": 0.5} for _, id_, *_, said in ROWS}, "JSON object by id"),
    "inside.json": ({"model": "a", "results": RECORDS}, "JSON object with the list .results[]"),
    "lines.jsonl": (lines(RECORDS), "JSON lines"),
}  # fmt: skip


@pytest.mark.parametrize("name", GENERIC)
def test_a_layout_is_known_by_its_content(tmp_path, name):
    content, layout = GENERIC[name]
    read = read_predictions(write(tmp_path, name, content))
    assert (read.layout, read.ids["id"], read.texts) == (layout, IDS, SAID)
    assert (read.rows, read.described[1:]) == (3, ["1 of 3 predictions are empty, and so wrong"])


def test_a_question_that_a_server_refused_is_left_out(tmp_path):
    """This project writes neither a prediction nor a judgement of it."""
    columns = {
        "question_id": IDS,
        "prediction": [SAID[0], None, "x"],
        "correct": [True, None, False],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    read = read_predictions(tmp_path / "a.parquet")
    assert (read.rows, read.correct) == (2, [True, False])
    assert read.ids["question_id"] == [IDS[0], IDS[2]]
    assert any(note.startswith("1 of 3 rows have neither") for note in read.notes)


def test_parquet_is_read_with_lists_for_answers(tmp_path):
    """Texts alone have no keys."""
    pq.write_table(
        pa.table({"ID": list(map(int, IDS)), "Output": SAID, "golds": GOLD}), tmp_path / "a.parquet"
    )
    read = read_predictions(tmp_path / "a.parquet")
    assert (read.layout, read.ids, read.texts) == ("Parquet", {"id": IDS}, SAID)
    assert read.answers == [tuple(answers) for answers in GOLD]
    read = read_predictions(write(tmp_path, "list.json", SAID))
    assert (read.texts[:2], read.ids, read.questions) == (SAID[:2], {}, None)


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["Rome", "Oslo, I think", "", "Ho"], ""),
        (["Rome", "Oslo", "", "Ho"], "\n"),
        (["Rome", "Oslo", "", "Ho"], "\n\n"),
        (["Rome", "Oslo", "Ho", ""], ""),
        (["Rome", "Oslo", "Ho", ""], "\n"),
        (["[No Retrieval]Rome[Utility:5]", "[Retrieval]<paragraph>Oslo</paragraph>", "x", "y"], "\n"),
        (["[1] Rome", "[2] Oslo", "[3, 4] Ho", "[a"], "\n"),
        (["[[citation]] Rome", "Oslo", "Ho", "x"], "\n"),
        (['"Rome', "Oslo", 'Ho "is"', "x"], "\n"),
        (["'Rome'", "Oslo; no", "Ho | no", "x"], "\n"),
        (["The answer is Rome.", "a\tb", "c", "d"], "\n"),
        (["", "Oslo", "Ho", "x"], "\n"),
    ],
)  # fmt: skip
def test_lines_of_text_are_refused_with_what_helps(tmp_path, texts, ends):
    for name, newline in product(("a.txt", "a"), ("\n", "\r\n")):
        path = write(tmp_path, name, ("\n".join(texts) + ends).replace("\n", newline))
        with pytest.raises(LongtailError) as refused:
            read_predictions(path)
        assert f"jq -R '{{prediction: .}}' {name} > {name}.jsonl" in str(refused.value)


def test_a_table_whose_columns_nobody_knows_is_no_lines(tmp_path):
    for name, content, said in [
        ("a", "7\tRome\n8\tOslo\n", "its columns are 7, Rome, expected .* rename one, or add a header"),
        ("a.txt", "7\tRome\n8\tOslo\n", "its columns are 7, Rome"),
        ("a.csv", "nr,text\n7,Rome\n8,Oslo, or not\n", "its columns are nr, text"),
        ("a.csv", "prediction\rRome\rOslo\r", r"its lines end in \\r alone, .*tr '\\r' '\\n' < a.csv > new-a.csv"),
        ("a", " \n\n", "nothing but blank lines"),
    ]:  # fmt: skip
        with pytest.raises(LongtailError, match=said):
            read_predictions(write(tmp_path, name, content))


@pytest.mark.parametrize("order", ["le", "be"])
def test_tables_and_records_may_be_utf16(tmp_path, order):
    """Excel and PowerShell write it."""
    for name in GENERIC.keys() - {"packed.csv.gz", "bom.csv"}:
        content, layout = GENERIC[name]
        text = content if isinstance(content, str) else json.dumps(content)
        for called in (name, "a.txt"):  # Excel's "Unicode text"
            read = read_predictions(
                write(tmp_path, called, ("\ufeff" + text).encode(f"utf-16{order}"))
            )
            assert (read.layout, read.ids["id"], read.texts) == (layout, IDS, SAID)


def test_the_column_of_predictions_has_many_names(tmp_path):
    """A judgement has many forms."""
    for name in (
        "Prediction",
        "answer",
        "pred",
        "OUTPUT",
        "response",
        "generation",
        "Model Output",
    ):
        assert (
            read_predictions(write(tmp_path, "a.csv", as_quoted(",", ("id", name)))).texts == SAID
        )
    for right, wrong in (
        ("True", "False"),
        ("1", "0"),
        ("1.0", "0.0"),
        ("true", "false"),
        ("TRUE", "FALSE"),
    ):
        read = read_predictions(
            write(tmp_path, "a.csv", f"Id,Is_Correct\n1.0,{right}\n2.0,{wrong}\n")
        )
        assert (read.ids, read.correct, read.texts) == ({"id": ["1", "2"]}, [True, False], None)
    assert (
        read_predictions(write(tmp_path, "a.csv", "id,pred,score\n1,a,0.4\n2,b,1\n")).correct
        is None
    )
    with pytest.raises(
        LongtailError, match=r"correct of row 2 \(2\) is 'perhaps', expected true or false"
    ):
        read_predictions(write(tmp_path, "a.csv", "id,pred,correct\n1,a,1\n2,b,perhaps\n"))
    read = read_predictions(write(tmp_path, "a.csv", "id,answer,correct\n1,Paris,0\n"))
    assert (read.texts, read.correct) == (None, [False])
    read = read_predictions(write(tmp_path, "a.csv", "id,prediction,correct\n1,,1\n2,,0\n"))
    assert (read.texts, read.correct) == (None, [True, False]), "there is nothing to judge here"
    assert read_predictions(write(tmp_path, "a.csv", "id,prediction\n1,\n2,\n")).texts == ["", ""]


def counted(read) -> dict[str, str]:
    """How many predictions each note is about, by its first words."""
    return {
        " ".join(note.partition(" (")[0].split()[4:7]): note.split()[0]
        for note in read.described[1:]
    }


def test_lists_empties_reasoning_and_marked_answers_are_counted(tmp_path):
    said = [["Paris"], ["Paris", "Rome"], "['Oslo', 'Bern']", None, "  "]
    said += ["Rome? <answer>Paris</answer>", "x" * 1001, "[sic] Bern", "[sic]"]
    read = read_predictions(
        write(tmp_path, "a.json", [{"id": n, "pred": text} for n, text in enumerate(said)])
    )
    assert read.texts[:5] == ["Paris", "Paris", "Oslo", "", ""]
    assert counted(read) == {"are empty, and": "1", "have no answer": "1"} | dict.fromkeys(
        ("are lists; the", "are whole texts"), "2"
    )
    read = read_predictions(
        write(tmp_path, "a.json", [{"id": 1, "output": "Rome or Bern", "parsed_answer": "Bern"}])
    )
    assert (read.texts, read.described[1]) == (
        ["Bern"],
        "`output` may be a prediction too, and is not judged",
    )
    said = [
        "<think>Rome?</think> Paris",
        "Rome?</think><answer>Oslo</answer>",
        "<think>Bern, or",
        "Oslo",
    ]
    read = read_predictions(write(tmp_path, "a.json", said))
    assert (read.texts, counted(read)["begin with reasoning;"]) == (
        ["Paris", "Oslo", "", "Oslo"],
        "3",
    )
    for said in ('{"Bern","Rome"}', "[Bern, Rome]", "['Bern' ... 'Rome']", "{}"):
        with pytest.raises(
            LongtailError, match=r"row 1: the prediction is .*write JSON|cut, damaged|shortened"
        ):
            read_predictions(
                write(
                    tmp_path, "a.csv", f'id,prediction\n1,"{said.replace(chr(34), chr(34) * 2)}"\n'
                )
            )
    assert read_predictions(write(tmp_path, "a.json", ['"Bern \\u00e9"'])).texts == ["Bern é"]
    assert read_predictions(write(tmp_path, "a.json", ['"Heroes"'])).texts == ['"Heroes"']
    said = [
        "He was born in Oslo, not in Bern. Answer: Oslo",
        "so\nANSWER: Rome",
        "Answer: Rome",
        "Paris",
    ]
    path = write(tmp_path, "a.json", said)
    assert counted(read_predictions(path)) == {"are whole texts": "2"}
    read = read_predictions(path, pattern="(?i)answer:(.*)")
    assert read.texts == ["Oslo", "Rome", "Rome", ""]
    assert counted(read) == {"are empty, and": "1", "have nothing that": "1"}


def test_a_pattern_cuts_the_last_answer_out_of_a_text(tmp_path):
    rome = "<answer> Beijing </answer> is an example\n<answer>\nRome (Italy)\n</answer> done"
    path = write(tmp_path, "a.json", [rome, "no tag", "<answer></answer>"])
    read = read_predictions(path, pattern="<answer>(.*?)</answer>")
    assert read.texts == ["Rome (Italy)", "", ""]
    assert counted(read) == {"are empty, and": "2", "have nothing that": "1"}
    assert read_predictions(path, pattern="(?i)(TAG)$").texts == ["", "tag", ""]
    whole = read_predictions(path, pattern="(nowhere)")
    assert (whole.is_cut, whole.texts[1]) == (False, "no tag"), "a file without it stays whole"
    path = write(tmp_path, "a.json", ["so it is Rome \n", " Oslo: yes"])
    assert read_predictions(path, pattern=r"\b(\w+)$").texts == ["Rome", "yes"], (
        "blanks make no difference to $"
    )


def test_no_pattern_takes_more_than_linear_time():
    """By backtracking, this one would take longer than the universe is old."""
    assert cut_answers(["a" * 5000 + "!"] * 3, "((?:a+)+)$") == [None] * 3


def test_a_pattern_that_cannot_cut_is_refused():
    for pattern, fault in [
        ("(", "missing )"),
        ("[a", "missing ]"),
        ("*(a)", "no argument for repetition operator"),
        ("(a){5000}", "invalid repetition size"),
        ("(?<=a)(b)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("no group", "it has no group;"),
    ]:
        with pytest.raises(LongtailError) as error:
            cut_answers([], pattern)
        assert str(error.value).startswith(f"--answer-pattern {pattern}: ")
        assert fault in str(error.value)
        assert str(error.value).endswith(
            "; expected a pattern with a group, as '<answer>(.*?)</answer>'"
        )


def test_quotes_without_quoting_are_read(tmp_path):
    """Read as quoted, the first row's quote would end in the second, and swallow it."""
    read = read_predictions(
        write(tmp_path, "a.tsv", 'id\tpred\n1\t"Heroes\n2\tby "Bowie"\n3\tc"\n')
    )
    assert (read.ids["id"], read.texts) == (["1", "2", "3"], ['"Heroes', 'by "Bowie"', 'c"'])
    long = "x" * 300_000  # more than Python's reader usually takes
    assert read_predictions(write(tmp_path, "a.csv", f'id,pred\n1,"{long}"\n2,b\n')).texts == [
        long,
        "b",
    ]
    read = read_predictions(
        write(tmp_path, "a.json", [{"question": "Beyonce\u0301?", "pred": "Me\u0301xico"}])
    )
    assert (read.questions, read.texts) == (["Beyonc\xe9?"], ["M\xe9xico"])


def test_what_is_no_file_of_predictions_is_refused(tmp_path):
    for name, content, said in [
        ("a.jsonl", lines([RECORDS[0], {"id": "a", "gts": [], "score": 1}]), "row 2: other columns than the first"),
        ("a.csv", "id,Pred,pred\n1,a,b\n", "two columns 'pred'"),
        ("a.csv", "id,answer,em\n1,['a'],.5\n", "its columns are id, answer, em; expected .*; rename one"),
        ("a.csv", "id,pred\n1,a,b\n", "line 2: 3 columns, expected 2"),
        ("a.csv", 'id,pred\n1,"a\n', "line 2: .*expected a quoted table"),
        ("a.csv", b"id,pred\n1,\xff\n2,\xe9\n", "row 1: not UTF-8, as 2 of 2 rows; .*iconv"),
        ("a.json", "[]", "no row in it"),
        ("a.json", '[{"id": 1, "pred": "a"}', "not JSON .Expecting"),
        ("a.json", "[" * 200_000, "not JSON .nested too deeply"),
        ("a.json", '[{"id": 1, "pred": "a"}, 3]', "element 2: no JSON object"),
        ("a.json", '[{"id": 1, "pred": {"name": "a"}}]', "row 1: the prediction is an object"),
        ("a.json", "{}", "no row in it"),
        ("a.json", '{"id": [1, 2], "pred": ["a"]}', "1 values in 'pred' and 2 in others"),
        ("a.jsonl", '{"id": 1, "pred": "a"}\nnothing\n', "line 2: .*expected a JSON object"),
    ]:  # fmt: skip
        with pytest.raises(LongtailError, match=said) as error:
            read_predictions(write(tmp_path, name, content))
        assert "\n" not in str(error.value)


def test_a_list_is_refused_beyond_what_is_read_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.params.bounds.WHOLE", 400)
    with pytest.raises(
        LongtailError, match="in one piece, expected a short list; write a record a line"
    ):
        read_predictions(write(tmp_path, "a.json", ["x" * 5000]))
