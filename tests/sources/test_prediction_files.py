"""Predictions of other people's systems: each layout is recognised and named, and what is no table is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fetching import saved

from pipelines.errors import LongtailError
from pipelines.sources.prediction_files import cut_answers, read_predictions

IDS = ["4222362", "4725190", "4382392"]
ASKED = ["What is George Rankin's occupation?", 'Who wrote "Heroes"?', "What is Ho the capital of?"]
GOLD = [["politician", "pol"], ["David Bowie"], ["Ho Municipality"]]
SAID = ["politician", '"Heroes" is by Bowie, I think; yes', ""]
ROWS = list(zip(range(3), IDS, ASKED, GOLD, SAID, strict=True))


def write(tmp_path, name, content):
    return saved(tmp_path / name, content if isinstance(content, str | bytes) else json.dumps(content))


def quoted(rows, delimiter=","):
    return "".join(delimiter.join('"' + c.replace('"', '""') + '"' for c in cells) + "\r\n" for cells in rows)


def as_quoted(delimiter, names=("id", "Prediction")):
    return quoted([names, *zip(IDS, SAID, strict=True)], delimiter)


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


PLAIN = "id\tpred\n" + "".join(f"{id_}\t{said}\n" for _, id_, _, _, said in ROWS)
RECORDS = [{"id": id_, "prediction": said} for _, id_, _, _, said in ROWS]
BY_NUMBER = [dict(zip("012", values, strict=True)) for values in (IDS, SAID)]
GENERIC = {
    "a.csv": (as_quoted(","), "CSV"),
    "semicolons.csv": (as_quoted(";"), "CSV with semicolons"),
    "bom.csv": (b"\xef\xbb\xbf" + as_quoted(",").encode(), "CSV"),
    "quoted.tsv": (as_quoted("\t"), "TSV"),
    "plain.tsv": (PLAIN, "TSV without quotes"),
    "called.csv": (as_quoted("\t"), "TSV"),
    "packed.csv.gz": (as_quoted(","), "CSV"),
    "list.json": (RECORDS, "JSON list"),
    "columns.json": ({"id": IDS, "prediction": SAID}, "JSON object of columns"),
    "pandas.json": (dict(zip(("id", "prediction"), BY_NUMBER, strict=True)), "JSON object of columns"),
    "by_id.json": (dict(zip(IDS, SAID, strict=True)), "JSON object by id"),
    "objects.json": ({id_: {"prediction": said, "score": 0.5} for _, id_, *_, said in ROWS}, "JSON object by id"),
    "inside.json": ({"model": "a", "results": RECORDS}, "JSON object with a list"),
    "lines.jsonl": (lines(RECORDS), "JSON lines"),
}


@pytest.mark.parametrize("name", GENERIC)
def test_a_layout_is_known_by_its_content(tmp_path, name):
    content, layout = GENERIC[name]
    read = read_predictions(write(tmp_path, name, content))
    assert (read.layout, read.ids["id"], read.texts) == (layout, IDS, SAID)
    assert (read.rows, read.described[1:]) == (3, ["1 of 3 predictions are empty, and so wrong"])


def test_parquet_is_read_with_lists_for_answers_and_texts_alone_have_no_keys(tmp_path):
    pq.write_table(pa.table({"ID": list(map(int, IDS)), "Output": SAID, "golds": GOLD}), tmp_path / "a.parquet")
    read = read_predictions(tmp_path / "a.parquet")
    assert (read.layout, read.ids, read.texts) == ("Parquet", {"id": IDS}, SAID)
    assert read.answers == [tuple(answers) for answers in GOLD]
    for name, content in {"list.json": SAID, "list.txt": "\n".join(SAID) + "\n\n"}.items():
        read = read_predictions(write(tmp_path, name, content))
        assert (read.texts[:2], read.ids, read.questions) == (SAID[:2], {}, None)


@pytest.mark.parametrize("name", ["a.txt", "a", "a.out", "predictions.pred"])
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
)
def test_lines_of_text_are_predictions_whatever_they_begin_with(tmp_path, name, texts, ends):
    for newline in ("\n", "\r\n"):
        path = write(tmp_path, name, ("\n".join(texts) + ends).replace("\n", newline))
        read = read_predictions(path, questions=len(texts))
        assert (read.layout, read.texts) == ("text, a prediction a line", texts)


def test_lines_may_be_texts_or_lists_in_json(tmp_path):
    for value in (lambda text: text, lambda text: [text], lambda text: [text, "no"]):
        path = write(tmp_path, "a.jsonl", "".join(json.dumps(value(said)) + "\n" for said in ("Rome", "Bogot\xe1", "")))
        assert read_predictions(path, questions=3).texts == ["Rome", "Bogot\xe1", ""]
    objects = "".join(json.dumps([{"provenance": said}]) + "\n" for said in ("Rome", "Oslo"))
    with pytest.raises(LongtailError, match="no row has an answer"):
        read_predictions(write(tmp_path, "a.jsonl", objects))


def test_a_table_whose_columns_nobody_knows_is_no_lines(tmp_path):
    for name, content, said in [
        ("a", "7\tRome\n8\tOslo\n", "its columns are 7, Rome, expected .* rename one, or add a header"),
        ("a.txt", "7\tRome\n8\tOslo\n", "its columns are 7, Rome"),
        ("a", "nr,text\n7,Rome\n8,Oslo\n", "its columns are nr, text"),
        ("a.csv", "nr,text\n7,Rome\n8,Oslo, or not\n", "its columns are nr, text"),
        (
            "a.csv",
            "said so\nRome\nOslo\n",
            "3 lines of text for 2 questions, .* if the first, 'said so', is the column's",
        ),
        ("a.csv", "prediction\rRome\rOslo\r", r"its lines end in \\r alone, .*tr '\\r' '\\n' < a.csv > new-a.csv"),
        ("a", " \n\n", "nothing but blank lines"),
    ]:
        with pytest.raises(LongtailError, match=said):
            read_predictions(write(tmp_path, name, content), questions=2)


@pytest.mark.parametrize("order", ["le", "be"])
def test_tables_and_records_may_be_utf16_as_excel_and_powershell_write_them(tmp_path, order):
    for name in GENERIC.keys() - {"packed.csv.gz", "bom.csv"}:
        content, layout = GENERIC[name]
        text = content if isinstance(content, str) else json.dumps(content)
        for called in (name, "a.txt"):  # Excel's "Unicode text"
            read = read_predictions(write(tmp_path, called, ("\ufeff" + text).encode(f"utf-16{order}")))
            assert (read.layout, read.ids["id"], read.texts) == (layout, IDS, SAID)


# What published systems write, made again with three questions of PopQA.
HARNESS = [
    {"doc_id": n, "target": gold[0], "resps": [[f" {said}\n"]], "filtered_resps": [said], "filter": "none"}
    | {"doc": {"id": int(id_), "question": question, "answer": gold[0], "possible_answers": json.dumps(gold)}}
    | {"arguments": {"gen_args_0": {"arg_0": f"Q: {question} A:"}}, "doc_hash": "a"}
    | {"metrics": ["exact_match"], "exact_match": float(n == 0)}
    for n, id_, question, gold, said in ROWS
]
FLASHRAG_OUTPUT = {"retrieval_result": [{"id": "7", "contents": "x"}], "prompt": "Answer"}
FLASHRAG = [
    {"id": f"test_{n}", "question": question, "golden_answers": gold}
    | {"output": FLASHRAG_OUTPUT | {"pred": said, "metric_score": {"em": float(n == 0), "f1": 0.4}}}
    for n, _, question, gold, said in ROWS
]
SELF_RAG = {"preds": SAID, "prompts": [f"### Instruction:\n{question}\n\n### Response:\n" for question in ASKED]}
SELF_RAG |= {"metric_results": [1, 0, 0], "all_results": [{"no_retrieval": said} for said in SAID]}
SELF_RAG |= {"golds": [], "metric": "match", "metric_mean": 0.33, "scores": []}
VERL_PROMPT = "user\nAnswer in <answer> Beijing </answer>. Question: {}\n<|im_end|>\n<|im_start|>assistant"
VERL = [
    {"input": VERL_PROMPT.format(question), "output": said, "gts": {"target": gold}, "score": float(n == 0), "step": 0}
    for n, _, question, gold, said in ROWS
]
SEARCH_R1 = [
    {"qid": id_, "query": question, "gt_answers": gold, "final_answer": said, "is_correct": n == 0}
    for n, id_, question, gold, said in ROWS
]
KILT = [
    {"id": id_, "input": question, "output": [{"answer": said, "provenance": [{"title": "x"}]}, {"answer": "no"}]}
    for _, id_, question, _, said in ROWS
]


def chat(question, said):
    return [{"role": "user", "content": f"{question} Is it {WRONG}?"}, {"role": "assistant", "content": said}]


def chosen(question, said):
    return {"choices": [{"index": 0, "message": chat(question, said)[1], "finish_reason": "stop"}]}


WRONG = "Beijing"  # no prediction
CHAT = [{"id": id_, "question": asked, "generated_text": chat(asked, said)} for _, id_, asked, _, said in ROWS]
MESSAGES = [{"id": id_, "question": asked, "messages": chat(asked, said)} for _, id_, asked, _, said in ROWS]
INSTRUCT_RAG = [
    {"question": asked, "answers": gold, "qa_pairs": None, "rationale": said, "prompt": f"{WRONG} {asked}", "ctxs": []}
    for _, _, asked, gold, said in ROWS
]
BATCH = [
    {"id": f"batch_req_{n}", "custom_id": id_, "error": None}
    | {"response": {"status_code": 200, "request_id": "r", "body": chosen(asked, said)}}
    for n, id_, asked, _, said in ROWS
]
RUN_BATCH = [
    {"id": f"vllm-{n}", "custom_id": id_, "error": None}
    | {"response": {"status_code": 200, "request_id": "r", "body": {"choices": [{"index": 0, "text": said}]}}}
    for n, id_, _, _, said in ROWS
]
ANTHROPIC = [
    {"custom_id": id_, "result": {"type": "succeeded", "message": {"role": "assistant", "content": [part]}}}
    for id_, part in zip(IDS, [{"type": "text", "text": said} for said in SAID], strict=True)
]
GEMINI = [
    {"key": id_, "response": {"candidates": [{"content": {"role": "model", "parts": [{"text": said}]}}]}}
    for _, id_, _, _, said in ROWS
]
BEDROCK = [
    {"recordId": id_, "modelInput": {"messages": chat(WRONG, WRONG)[:1]}}
    | {"modelOutput": {"role": "assistant", "content": [{"type": "text", "text": said}], "usage": {"input_tokens": 9}}}
    for _, id_, _, _, said in ROWS
]
BEDROCK_TITAN = [  # and Converse, which has its own
    {"recordId": id_, "modelInput": {"inputText": WRONG}}
    | {"modelOutput": {"inputTextTokenCount": 8, "results": [{"outputText": said, "completionReason": "FINISH"}]}}
    for _, id_, _, _, said in ROWS[:2]
]
BEDROCK_TITAN += [
    {"recordId": id_, "modelInput": {"messages": []}}
    | {"modelOutput": {"output": {"message": {"role": "assistant", "content": [{"text": said}]}}, "stopReason": "x"}}
    for _, id_, _, _, said in ROWS[2:]
]
HAYSTACK = [
    {"question": asked, "llm": {"replies": [said], "meta": [{"model": "x"}]}, "retriever": {"documents": [WRONG]}}
    for _, _, asked, _, said in ROWS
]
HAYSTACK_BUILDER = [
    {"question": asked, "llm": {"replies": [WRONG]}}
    | {"answer_builder": {"answers": [{"data": said, "query": asked, "documents": [{"content": WRONG}], "meta": {}}]}}
    for _, _, asked, _, said in ROWS
]
HAYSTACK_1 = [
    {"query": asked, "no_ans_gap": 1.5, "node_id": "Reader"}
    | {"answers": [{"answer": said, "type": "extractive", "score": 0.9, "context": WRONG, "document_ids": ["x"]}]}
    for _, _, asked, _, said in ROWS
]
HELM = [
    {"instance": {"id": f"id{n}", "input": {"text": asked}, "references": [{"output": {"text": gold[0]}}]}}
    | {"result": {"success": True, "completions": [{"text": said, "tokens": []}]}, "train_trial_index": 0}
    for n, _, asked, gold, said in ROWS
]
PROMPTFOO = [
    {"testIdx": n, "vars": {"question": asked}, "prompt": {"raw": WRONG}, "response": {"output": said}, "success": True}
    for n, _, asked, _, said in ROWS
]
LANGSMITH = [{"inputs": {"question": asked}, "outputs": {"answer": said}} for _, _, asked, _, said in ROWS]
INSPECT = [
    {"id": id_, "input": asked, "target": WRONG, "output": chosen(asked, said) | {"completion": said}}
    for _, id_, asked, _, said in ROWS
]
DEEPEVAL = [
    {"name": n, "input": asked, "actualOutput": said, "expectedOutput": WRONG, "success": True}
    for n, _, asked, _, said in ROWS
]
LIGHTEVAL = [
    {
        "doc": {"query": asked, "choices": gold},
        "model_response": {"input": WRONG, "text": [said], "reasonings": [WRONG]},
    }
    for _, _, asked, gold, said in ROWS
]
LANGCHAIN = [
    {"query": asked, "result": said, "source_documents": [{"page_content": WRONG}]} for _, _, asked, _, said in ROWS
]
VLLM = [
    {"id": id_, "question": asked, "prompt": f"{WRONG} {asked}", "outputs": [{"index": 0, "text": said}]}
    for _, id_, asked, _, said in ROWS
]
FULL = [
    {"id": id_, "question": asked, "prompt": f"{WRONG}? {asked} A:", "generated_text": f"{WRONG}? {asked} A: {said}"}
    for _, id_, asked, _, said in ROWS
]
RAW = [{"question": asked} | chosen(asked, said) for _, _, asked, _, said in ROWS]
RAW_MESSAGES = [{"question": asked, "message": chat(asked, said)[1]} for _, _, asked, _, said in ROWS]
RAW_PARTS = [
    {"question": asked, "content": [{"type": "thinking", "thinking": WRONG}, {"type": "text", "text": said}]}
    for _, _, asked, _, said in ROWS
]
AUTHORS = [["", "id", "subj", "prop", "possible_answers", "question", "is_correct", "prompt", "pred", "generation"]]
AUTHORS += [
    [str(n), f"{id_}.0", "x", "genre", json.dumps(gold), question, str(n == 0), "Q: x\n\nQ: y", said, "All"]
    for n, id_, question, gold, said in ROWS
]


def test_the_layouts_of_published_systems(tmp_path):
    for name, content, layout, keys in [
        ("samples_popqa_2025.jsonl", lines(HARNESS), "lm-evaluation-harness' samples", {"id": IDS}),
        ("intermediate_data.json", FLASHRAG, "FlashRAG's intermediate data", {"id": ["test_0", "test_1", "test_2"]}),
        ("popqa_7b.json", SELF_RAG, "Self-RAG's results", {}),
        ("100.jsonl", lines(VERL), "Search-R1's results", {}),
        ("inference.jsonl", lines(SEARCH_R1), "Search-R1's results", {"qid": IDS}),
        ("model=a-input=b.csv", quoted(AUTHORS), "the PopQA authors' results", {"id": IDS}),
    ]:
        read = read_predictions(write(tmp_path, name, content))
        assert (read.layout, read.texts, read.questions, read.ids) == (layout, SAID, ASKED, keys)
        assert read.correct == [True, False, False]
        expected = None if layout.startswith("Self-RAG") else [tuple(answers) for answers in GOLD]
        assert read.answers == expected


OPENAI = "output of a batch of OpenAI's API or vLLM's"
OBJECTS = {  # layout -> records, and whether they have questions and ids
    "KILT's output": (KILT, True, True),
    "messages of a chat": (CHAT, True, True),
    "InstructRAG's results": (INSTRUCT_RAG, True, False),
    OPENAI: (BATCH, False, True),
    f"{OPENAI} ": (RUN_BATCH, False, True),
    "results of a batch of Anthropic's API": (ANTHROPIC, False, True),
    "output of a batch of Gemini's API": (GEMINI, False, True),
    "output of a batch of Amazon Bedrock": (BEDROCK, False, True),
    "output of a batch of Amazon Bedrock ": (BEDROCK_TITAN, False, True),
    "an API's answers": (RAW, True, False),
    "an API's answers ": (RAW_MESSAGES, True, False),
    "an API's answers  ": (RAW_PARTS, True, False),
    "HELM's scenario states": (HELM, True, False),
    "promptfoo's results": (PROMPTFOO, True, False),
    "LangSmith's runs": (LANGSMITH, True, False),
    "Inspect's samples": (INSPECT, True, True),
    "DeepEval's test cases": (DEEPEVAL, True, False),
    "lighteval's details": (LIGHTEVAL, True, False),
    "Haystack's outputs": (HAYSTACK, True, False),
    "Haystack's outputs ": (HAYSTACK_BUILDER, True, False),
    "Haystack 1's answers": (HAYSTACK_1, True, False),
    "LangChain's results": (LANGCHAIN, True, False),
    "JSON lines": (MESSAGES, True, True),
    "JSON lines ": (VLLM, True, True),
    "JSON lines  ": (FULL, True, True),
}


@pytest.mark.parametrize("layout", OBJECTS)
def test_of_objects_the_answer_alone_is_the_prediction(tmp_path, layout):
    records, has_questions, has_ids = OBJECTS[layout]
    read = read_predictions(write(tmp_path, "a.jsonl", lines(records)))
    assert (read.layout, read.texts) == (layout.strip(), SAID)
    assert read.questions == (ASKED if has_questions else None)
    assert read.ids == ({"id": IDS} if has_ids else {})


@pytest.mark.parametrize("form", ["csv of Python", "csv of JSON", "Parquet"])
def test_objects_are_read_in_tables_too(tmp_path, form):
    objects = {id_: chat(asked, said) for _, id_, asked, _, said in ROWS}
    path = tmp_path / "a"
    if form == "Parquet":
        pq.write_table(pa.table({"id": IDS, "output": list(objects.values())}), path)
    else:
        spell = json.dumps if form == "csv of JSON" else str
        path = write(tmp_path, "a", quoted([("id", "output"), *((id_, spell(said)) for id_, said in objects.items())]))
    assert read_predictions(path).texts == SAID


def test_opencompass_and_llama_factory_number_the_questions_and_carry_prompts_and_gold_answers(tmp_path):
    prompts = [[{"role": "HUMAN", "prompt": f"Q: {asked}"}] for asked in ASKED]
    records = [
        {"origin_prompt": prompt, "prediction": said} | ({"gold": gold} if n else {})
        for prompt, (n, _, _, gold, said) in zip(prompts, ROWS, strict=True)
    ]
    path = write(tmp_path, "popqa.json", json.dumps({str(n): one for n, one in enumerate(records)}, indent=4))
    read = read_predictions(path)
    assert (read.layout, read.texts, read.ids) == ("OpenCompass' predictions", SAID, {})
    assert read.column("prompt") == [f"Q: {asked}" for asked in ASKED]
    assert read.answers == [(), ("David Bowie",), ("Ho Municipality",)]
    records = [{"prompt": f"user {asked}", "predict": said, "label": WRONG} for _, _, asked, _, said in ROWS]
    read = read_predictions(write(tmp_path, "generated_predictions.jsonl", lines(records)))
    assert (read.layout, read.texts, read.answers) == ("LLaMA-Factory's predictions", SAID, None)
    assert read.column("prompt") == [f"user {asked}" for asked in ASKED]
    records = [{"label": f"{gold[0]}\n", "predict": said} for *_, gold, said in ROWS]
    read = read_predictions(write(tmp_path, "generated_predictions.jsonl", lines(records)))
    assert (read.texts, read.answers) == (SAID, [(gold[0],) for gold in GOLD])


FAILED = {"object": "error", "message": WRONG, "type": "BadRequestError", "param": None, "code": 400}
ODD = {  # a first record without an answer, and the file's others
    "KILT without an answer": ({"id": "0", "input": "x", "output": [{"provenance": [{"title": WRONG}]}]}, KILT),
    "KILT without entries": ({"id": "0", "input": "x", "output": []}, KILT),
    "a chat without content": (
        {"id": "0", "question": "x", "generated_text": [{"role": "assistant", "content": None, "refusal": WRONG}]},
        CHAT,
    ),
    "a chat without messages": ({"id": "0", "question": "x", "generated_text": None}, CHAT),
    "OpenAI's error": (
        {"id": "b", "custom_id": "0", "response": None, "error": {"code": "x", "message": WRONG}},
        BATCH,
    ),
    "OpenAI's bad request": (
        BATCH[0] | {"custom_id": "0", "response": {"status_code": 400, "body": {"error": {"message": WRONG}}}},
        BATCH,
    ),
    "vLLM's error": (
        BATCH[0]
        | {"custom_id": "0", "response": {"status_code": 400, "request_id": "r", "body": None}, "error": FAILED},
        RUN_BATCH,
    ),
    "Anthropic's error": (
        {"custom_id": "0", "result": {"type": "errored", "error": {"type": "error", "error": {"message": WRONG}}}},
        ANTHROPIC,
    ),
    "Gemini's error": ({"key": "0", "error": {"code": 3, "message": WRONG}}, GEMINI),
    "Bedrock's error": (
        {"recordId": "0", "modelInput": {}, "error": {"errorCode": 400, "errorMessage": WRONG}},
        BEDROCK,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_a_record_without_an_answer_is_an_empty_prediction_by_name_and_tells_no_layout(tmp_path, name):
    odd, records = ODD[name]
    layout = read_predictions(write(tmp_path, "a.jsonl", lines(records))).layout
    read = read_predictions(write(tmp_path, "a.jsonl", lines([odd, *records])))
    assert (read.layout, read.texts) == (layout, ["", *SAID])
    none = (
        "1 of 4 predictions have no answer (null, an error, reasoning, tools or sources), and so are wrong: row 1 (0)"
    )
    assert none in read.described
    assert "1 of 4 predictions are empty, and so wrong" in read.described, "the last"
    with pytest.raises(LongtailError, match=r"no row has an answer|its columns are key, error"):
        read_predictions(write(tmp_path, "a.jsonl", lines([odd, odd])))


def test_what_is_no_text_is_refused_by_its_row(tmp_path):
    for record, said in [
        ({"output": {"a": "x", "b": "y"}}, "an object with the fields a, b, expected a text"),
        ({"output": chat("x", "y")[:1]}, "a list of messages, the last of which is of the role user"),
        ({"output": "{'answer': y, 'provenance': [x]}"}, "an object that is cut, damaged or oddly spelled"),
        ({"output": True}, "true, expected a text"),
    ]:
        with pytest.raises(LongtailError, match=f"row 2: the prediction is {said}"):
            read_predictions(write(tmp_path, "a.jsonl", lines([{"output": "y"}, record])))
    path = write(tmp_path, "a.json", [FLASHRAG[0], FLASHRAG[1] | {"output": {"metric_score": {"em": 0.0}}}])
    with pytest.raises(LongtailError, match=r"row 2: other columns than the first \(prediction\)"):
        read_predictions(path)


def test_messages_are_a_prediction_only_where_nothing_else_is(tmp_path):
    asked = [{"role": "user", "content": "x"}]
    assert read_predictions(write(tmp_path, "a.json", [{"messages": asked, "response": "y"}])).texts == ["y"]
    assert read_predictions(write(tmp_path, "a.json", [{"messages": asked, "correct": True}])).correct == [True]


def test_a_prompt_is_no_prediction(tmp_path):
    """transformers' pipeline returns the prompt with the text, unless it is told not to."""
    records = [{"question": asked, "generated_text": f"{asked} It is {n}."} for n, asked in enumerate(ASKED)]
    read = read_predictions(write(tmp_path, "a.json", records))
    assert read.texts == ["It is 0.", "It is 1.", "It is 2."]
    assert "3 of 3 predictions begin with their prompt; what follows it is judged" in read.described
    for record, asked in zip(records, ASKED, strict=True):
        record["generated_text"] = f"{WRONG} {asked} Answer: so"
    assert read_predictions(write(tmp_path, "a.json", records), pattern="Answer: (.*)").texts == ["so"] * 3
    records[0]["generated_text"] = records[1]["generated_text"] = "so"
    read = read_predictions(write(tmp_path, "a.json", records))
    assert "1 of 3 predictions hold their question, and perhaps more of the prompt" in " ".join(read.described)
    read = read_predictions(write(tmp_path, "a.json", [{"id": 1, "prompt": "base", "pred": "base camp"}]))
    assert read.texts == ["base camp"], "a prompt's name is no prompt"


def test_of_the_harness_the_first_filters_responses_are_taken_and_log_likelihoods_refused(tmp_path):
    other = [record | {"filter": "strict-match", "filtered_resps": ["[invalid]"]} for record in HARNESS]
    both = [record for pair in zip(HARNESS, other, strict=True) for record in pair]
    read = read_predictions(write(tmp_path, "samples.jsonl", lines(both)))
    assert (read.rows, read.texts) == (3, SAID)
    assert "none, strict-match, the responses of none are taken" in read.described[1]
    scored = [record | {"resps": [[-2.1, False]], "filtered_resps": [[-2.1, False]]} for record in HARNESS]
    with pytest.raises(LongtailError, match="row 1: the prediction is a list of numbers, expected a text"):
        read_predictions(write(tmp_path, "samples.jsonl", lines(scored)))


def test_the_column_of_predictions_has_many_names_and_a_judgement_many_forms(tmp_path):
    for name in ("Prediction", "answer", "pred", "OUTPUT", "response", "generation", "Model Output"):
        assert read_predictions(write(tmp_path, "a.csv", as_quoted(",", ("id", name)))).texts == SAID
    for right, wrong in (("True", "False"), ("1", "0"), ("1.0", "0.0"), ("true", "false"), ("TRUE", "FALSE")):
        read = read_predictions(write(tmp_path, "a.csv", f"Id,Is_Correct\n1.0,{right}\n2.0,{wrong}\n"))
        assert (read.ids, read.correct, read.texts) == ({"id": ["1", "2"]}, [True, False], None)
    assert read_predictions(write(tmp_path, "a.csv", "id,pred,score\n1,a,0.4\n2,b,1\n")).correct is None
    with pytest.raises(LongtailError, match="correct of 2 is 'perhaps', expected true or false"):
        read_predictions(write(tmp_path, "a.csv", "id,pred,correct\n1,a,1\n2,b,perhaps\n"))
    read = read_predictions(write(tmp_path, "a.csv", "id,answer,correct\n1,Paris,0\n"))
    assert (read.texts, read.correct) == (None, [False])
    read = read_predictions(write(tmp_path, "a.csv", "id,prediction,correct\n1,,1\n2,,0\n"))
    assert (read.texts, read.correct) == (None, [True, False]), "there is nothing to judge here"
    assert read_predictions(write(tmp_path, "a.csv", "id,prediction\n1,\n2,\n")).texts == ["", ""]


def counted(read) -> dict[str, str]:
    """How many predictions each note is about, by its first words."""
    return {" ".join(note.partition(" (")[0].split()[4:7]): note.split()[0] for note in read.described[1:]}


def test_lists_empties_reasoning_and_marked_answers_are_counted(tmp_path):
    said = [["Paris"], ["Paris", "Rome"], "['Oslo', 'Bern']", None, "  "]
    said += ["Rome? <answer>Paris</answer>", "x" * 1001, "[sic] Bern", "[sic]"]
    read = read_predictions(write(tmp_path, "a.json", [{"id": n, "pred": text} for n, text in enumerate(said)]))
    assert read.texts[:5] == ["Paris", "Paris", "Oslo", "", ""]
    assert counted(read) == {"are empty, and": "1", "have no answer": "1", "stand in brackets,": "1"} | dict.fromkeys(
        ("are lists; the", "are whole texts"), "2"
    )
    read = read_predictions(write(tmp_path, "a.json", [{"id": 1, "output": "Rome or Bern", "parsed_answer": "Bern"}]))
    assert (read.texts, read.described[1]) == (["Bern"], "`output` may be a prediction too, and is not judged")
    said = ["<think>Rome?</think> Paris", "Rome?</think><answer>Oslo</answer>", "<think>Bern, or", "Oslo"]
    read = read_predictions(write(tmp_path, "a.json", said))
    assert (read.texts, counted(read)["begin with reasoning;"]) == (["Paris", "Oslo", "", "Oslo"], "3")
    for said in ('{"Bern","Rome"}', "[Bern, Rome]", "['Bern' ... 'Rome']", "{}"):
        with pytest.raises(LongtailError, match=r"row 1: the prediction is .*write JSON|cut, damaged|shortened"):
            read_predictions(write(tmp_path, "a.csv", f'id,prediction\n1,"{said.replace(chr(34), chr(34) * 2)}"\n'))
    for said in ('"Bern \\u00e9"', '```json\n{"answer": "Bern \\u00e9"}\n```'):
        assert read_predictions(write(tmp_path, "a.json", [said])).texts == ["Bern é"]
    assert read_predictions(write(tmp_path, "a.json", ['"Heroes"'])).texts == ['"Heroes"']
    said = ["He was born in Oslo, not in Bern. Answer: Oslo", "so\nANSWER: Rome", "Answer: Rome", "Paris"]
    path = write(tmp_path, "a.json", said)
    assert counted(read_predictions(path)) == {"say 'Answer:' before": "2"}
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
    assert read_predictions(path, pattern=r"\b(\w+) \n").texts == ["Rome", ""], "it sees blanks and line ends"
    assert read_predictions(path, pattern=r"\b(\w+)$").texts == ["Rome", "yes"], "as they make no difference to $"


def test_no_pattern_takes_more_than_time_in_proportion_to_the_text():
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
        assert str(error.value).endswith("; expected a pattern with a group, as '<answer>(.*?)</answer>'")


def test_quotes_without_quoting_long_cells_and_another_unicode_normalisation_are_read(tmp_path):
    """Read as quoted, the first row's quote would end in the second, and swallow it."""
    read = read_predictions(write(tmp_path, "a.tsv", 'id\tpred\n1\t"Heroes\n2\tby "Bowie"\n3\tc"\n'))
    assert (read.ids["id"], read.texts) == (["1", "2", "3"], ['"Heroes', 'by "Bowie"', 'c"'])
    long = "x" * 300_000  # more than Python's reader usually takes
    assert read_predictions(write(tmp_path, "a.csv", f'id,pred\n1,"{long}"\n2,b\n')).texts == [long, "b"]
    read = read_predictions(write(tmp_path, "a.json", [{"question": "Beyonce\u0301?", "pred": "Me\u0301xico"}]))
    assert (read.questions, read.texts) == (["Beyonc\xe9?"], ["M\xe9xico"])


def test_what_is_no_file_of_predictions_is_refused_with_what_is_true(tmp_path):
    for name, content, said in [
        ("a.csv", "id,pred\n", "nothing in it but a header"),
        ("a.jsonl", lines([VERL[0], {"input": "a", "gts": [], "score": 1}]), "row 2: other columns than the first"),
        ("a.csv", "id,Pred,pred\n1,a,b\n", "two columns 'pred'"),
        ("a.csv", "id,text\n1,a\n", "its columns are id, text, expected one with what a model said"),
        ("a.csv", "id,answer,em\n1,['a'],.5\n", "rename one; its answer has gold answers; its em is not true or false"),
        ("a.csv", "id,pred\n1,a,b\n", "line 2: 3 columns, expected 2"),
        ("a.csv", 'id,pred\n1,"a\n', "line 2: .*expected a quoted table"),
        ("a.csv", b"id,pred\n1,\xff\n", "line 2: not UTF-8"),
        ("a.json", "[]", "no row in it"),
        ("a.json", '[{"id": 1, "pred": "a"}', "not JSON .Expecting"),
        ("a.json", '["\\ud800"]', "not JSON .half of a surrogate pair"),
        ("a.json", "[" * 200_000, "not JSON .nested too deeply"),
        ("a.json", '[{"id": 1, "pred": "a"}, 3]', "element 2: no JSON object"),
        ("a.json", '[{"id": 1, "pred": {"name": "a"}}]', "row 1: the prediction is an object"),
        ("a.json", "{}", "no row in it"),
        ("a.json", '{"id": [1, 2], "pred": ["a"]}', "1 values in 'pred' and 2 in others"),
        ("a.jsonl", '{"id": 1, "pred": "a"}\nnothing\n', "line 2: .*expected a JSON object"),
    ]:
        with pytest.raises(LongtailError, match=said) as error:
            read_predictions(write(tmp_path, name, content))
        assert "\n" not in str(error.value)


def test_a_list_is_refused_beyond_what_is_read_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.params.bounds.WHOLE", 400)
    with pytest.raises(LongtailError, match="in one piece, expected a short list; write a record a line"):
        read_predictions(write(tmp_path, "a.json", ["x" * 5000]))
