"""`longtail init` writes a profile that composes, holds what the folder allows, and says what is missing."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import struct
from pathlib import Path

import hostile
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from flows import data_files, init_profile, profiles
from flows.machine import GIB, Machine
from pipelines import catalogue, params_file
from pipelines.errors import LongtailError
from pipelines.lsr import plan, speed, workload
from pipelines.params import Params
from pipelines.questions import published

LAPTOP = Machine(cores=4, memory=16 * GIB, gpu=False, operations=5e10)
QUESTION = {"question": "where", "answer": ["here"]}
FILES = {  # data set -> path -> content; one of every layout, small
    "popqa": {"popQA.tsv": "\t".join(published.COLUMNS) + "\n"},
    "wikipedia": {"psgs_w100.tsv.gz": "id\ttext\ttitle\n1\tA harbour.\tVelm\n"},
    "pile": {"pile/00.jsonl": {"text": "A text.", "meta": {"pile_set_name": "Pile-CC"}}},
    "c4": {"c4/c4-train.00000-of-01024.json.gz": {"text": "A text.", "timestamp": "", "url": "https://a.example"}},
    "wikidata": {"wikidata/latest-all.json": '[\n{"type":"item","id":"Q1","labels":{},"claims":{}},\n]\n'},
    "pageviews": {"views/pageviews-202203-user.bz2": "en.wikipedia Velm 12 desktop 4 A4\n"},
    "redirects": {"enwiki-latest-redirect.sql.gz": "-- MySQL dump\nCREATE TABLE `redirect` (\n"},
    "entityquestions": {
        "eq/test/P17.test.json": [{"question": "Which country is Velm located in?", "answers": ["Nor"]}],
        "eq/relation_query_templates.json": {"P17": "Which country is [X] located in?"},
    },
    "mmlu/dev": {"mmlu/dev/anatomy_dev.csv": "Which?,a,b,c,d,A\n"},
    "mmlu/test": {"mmlu/test/anatomy_test.csv": "Which?,a,b,c,d,A\n"},
    "nq": {"nq/NQ-open.dev.jsonl": QUESTION},
    "triviaqa": {"triviaqa/validation.jsonl": {"question": "where", "answer": {"value": "here", "aliases": []}}},
    "retrieval": {"with_passages.jsonl": {"question": "where", "answers": ["here"], "ctxs": [{"text": "Here."}]}},
    "wikitext": {
        "wikitext/wiki.test.tokens": " \n = Velm = \n \n A harbour . \n",
        "wikitext/wiki.train.tokens": " \n = Mira = \n \n A town . \n",
    },
}


def write(folder: Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = (content if isinstance(content, str) else json.dumps(content) + "\n").encode()
        if path.suffix == ".bz2":
            import bz2

            data = bz2.compress(data)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def model(folder: Path, config: dict, parameters: int = 10, **files: object) -> Path:
    """A model's folder with everything but the weights' values."""
    header = json.dumps({"weight": {"dtype": "F32", "shape": [parameters], "data_offsets": [0, 0]}}).encode()
    write(
        folder,
        {"config.json": config, "tokenizer.json": {}} | {name.replace("__", "/"): f for name, f in files.items()},
    )
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def gpt(folder: Path, positions: int = 2048, parameters: int = 10) -> Path:
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_positions": positions}
    return model(folder, config, parameters)


def bert(folder: Path, kind: str = "BertModel", **files: object) -> Path:
    return model(folder, {"architectures": [kind], "model_type": "bert", "max_position_embeddings": 512}, **files)


@pytest.fixture
def checkout(root, tmp_path, monkeypatch) -> Path:
    """The working folder, with the project's conf/; `data` in it is the user's folder."""
    shutil.copytree(root / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_profile, "this_machine", lambda: LAPTOP)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def composed(name: str = "data") -> Params:
    return params_file.parse(yaml.safe_load(profiles.compose(name)))


def main_retriever(params: Params):
    return params.retriever[params.retrievers[0]]


def fetched(params: Params) -> dict[str, list[str]]:
    """What stage fetch would bring: data set -> files."""
    root = Path(params.fetch.root)
    return {
        key: sorted(file.name for glob in globs for file in root.glob(glob))
        for key, globs in params.fetch.files.items()
    }


def test_a_file_of_every_data_set_is_recognised(checkout):
    assert {key.partition("/")[0] for key in FILES} == set(catalogue.DATASETS)
    for key, files in FILES.items():
        write(checkout, files)
        for name in files:
            assert data_files.recognise(checkout / name) == (key, ""), name


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("dump-pages-articles.xml.gz", "<mediawiki><page>", "wikipedia"),
        ("wiki.jsonl", {"id": "1", "title": "Velm", "text": "A harbour."}, "wikipedia"),
        ("test.tsv", FILES["popqa"]["popQA.tsv"], "popqa"),
        ("flashrag_nq_test.jsonl", {"question": "where", "golden_answers": ["here"]}, "nq"),
        ("c4.jsonl", {"text": "A text.", "url": "https://a.example"}, "pile"),
        ("photo.json", {"width": 3}, ""),
        ("psgs_w100.tsv.bz2", "id\ttext\ttitle\n", ""),
        ("questions.jsonl", QUESTION, ""),
        ("nq-train.jsonl", QUESTION, ""),
        ("nq-test.jsonl.gz", QUESTION, ""),
        ("P17.train.json", [{"question": "Where?", "answers": ["Nor"]}], ""),
        ("anatomy_val.csv", "Which?,a,b,c,d,A\n", ""),
        ("enwiki-multistream-index.txt", "600:10:Velm\n", ""),
        ("page.jsonl", "<!doctype html><p>404", ""),
        ("empty.jsonl", "", ""),
    ],
)
def test_other_names_and_layouts(checkout, name, content, expected):
    write(checkout, {name: content})
    seen = data_files.recognise(checkout / name)
    assert seen.data_set == expected
    assert bool(seen.reason) == (not expected)
    assert "\n" not in seen.reason


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("all/test-00000-of-00001.parquet", {"question": "", "subject": "", "choices": [""], "answer": 0}, "mmlu/test"),
        ("all/auxiliary_train-0.parquet", {"question": "", "subject": "", "choices": [""], "answer": 0}, ""),
        ("validation.parquet", {"question": "", "answer": {"value": "", "aliases": [""]}}, "triviaqa"),
        ("open/validation.parquet", {"question": "", "answer": [""]}, ""),
        ("nq_open/validation.parquet", {"question": "", "answer": [""]}, "nq"),
        ("wikitext-103/test.parquet", {"text": ""}, "wikitext"),
        ("0.parquet", {"text": "", "meta": {"pile_set_name": ""}}, "pile"),
        ("0.parquet", {"id": "", "url": "", "title": "", "text": ""}, "wikipedia"),
        ("0.parquet", {"image": ""}, ""),
    ],
)
def test_parquet_is_told_by_its_columns(checkout, name, row, expected):
    (checkout / name).parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row]), checkout / name)
    assert data_files.recognise(checkout / name).data_set == expected


def test_only_the_beginning_of_a_file_is_read(checkout):
    entity = {"type": "item", "id": "Q1", "labels": {}, "claims": {"P1": ["x" * (1 << 17)]}}
    write(checkout, {"entities.json": entity, "cut.json.gz": ""})
    assert data_files.recognise(checkout / "entities.json").data_set == "wikidata"
    lines = gzip.compress((json.dumps({"text": "x", "meta": {}}) + "\n").encode() * 100_000)
    (checkout / "pile.jsonl.gz").write_bytes(lines[:-9])  # its cut end is not reached
    assert data_files.recognise(checkout / "pile.jsonl.gz").data_set == "pile"


def test_a_folder_with_everything_runs_everything(checkout):
    for files in FILES.values():
        write(checkout, files)
    gpt(checkout / "models/gpt2")
    bert(checkout / "models/encoder")
    init_profile.init(checkout, None, lsr=True)
    params = composed()
    sample = params_file.parse(yaml.safe_load(profiles.compose("sample")))
    assert params.retrievers == params.parts.ensembles == params.parts.tuned == ["encoder"]
    chosen = {"ensembles": ["encoder"], "tuned": ["encoder"], "hybrids": []}
    assert params.parts == sample.parts.model_copy(update=chosen)
    assert fetched(params) == {key: sorted(Path(name).name for name in files) for key, files in FILES.items()}
    assert params.popularity.month == "2022-03"
    assert params.popqa.source == "published"
    assert params.popqa.train_share > 0
    assert (params.lsr.queries, params.lsr.learning_rate) == ("mixed", 0.00002)


def test_questions_passages_and_models_are_enough_for_accuracy_by_popularity(checkout):
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "gpt2"), bert(checkout / "encoder")
    said = init_profile.init(checkout, None)
    params = composed()
    assert said[-2:] == ["  longtail plan --profile data", "  longtail run --profile data"]
    assert (params.lms, params.lm["gpt2"].path) == (["gpt2"], str(checkout / "gpt2"))
    retriever = params.retriever[params.retrievers[0]]
    assert (retriever.source, retriever.path) == ("pretrained", str(checkout / "encoder"))
    assert (params.tokenizer.source, params.tokenizer.path) == ("pretrained", str(checkout / "gpt2"))
    parts = params.parts
    assert (parts.answered, parts.datastore, parts.rules, parts.tuned) == (["popqa"], "wikipedia", ["popularity"], [])
    assert (parts.knowledge, parts.scored, parts.benchmarks, parts.passages) == ([], [], [], [])
    assert (params.popqa.source, params.popqa.train_share) == ("published", 0.0)


def test_the_profile_says_which_methods_answer_how_a_run_gets_short_and_what_has_no_effect(checkout):
    write(checkout, FILES["popqa"] | {"psgs_w100.tsv": "id\ttext\ttitle\n1\tA text.\tA title\n"})
    gpt(checkout / "gpt2"), bert(checkout / "encoder")
    init_profile.init(checkout, None)
    sections = Path("conf/profile/data.yaml").read_text().split("\n")
    parts, chunk, answer = (_comments_above(sections, f"{name}:") for name in ("parts", "chunk", "answer"))
    for method in ("closed_book", "bm25, dense", "genread", "replug"):
        assert f"#   {method}: " in parts
    assert "by the encoder encoder (dense)" in parts
    assert "replug_lsr" not in parts
    assert "passages are question sets that come with passages" in parts
    assert "For a short run: answer.max_questions: 60" in parts
    assert "ensembles: [] (no replug)." in parts
    assert "DPR's passages stay as they are" in chunk
    assert "passage_tokens: at most, of the passage that the language model writes itself (genread)." in answer
    write(checkout, FILES["pile"])
    init_profile.init(checkout, None, lsr=True, force=True)
    parts = _comments_above(Path("conf/profile/data.yaml").read_text().split("\n"), "parts:")
    assert "#   lsr, replug_lsr: " in parts
    assert "logprobs.max_queries: 100" in parts


def _comments_above(lines: list[str], section: str) -> str:
    end = start = lines.index(section)
    while lines[start - 1].startswith("#"):
        start -= 1
    return "\n".join(lines[start:end])


def test_parts_whose_data_are_missing_are_left_out_and_named(checkout):
    names = ("popqa", "wikipedia", "wikidata", "pageviews", "entityquestions", "nq")
    for name in names:
        write(checkout, FILES[name])
    gpt(checkout / "gpt2")
    said = init_profile.init(checkout, None)
    params = composed()
    assert params.parts.question_sets == ["popqa"]
    assert params.parts.benchmarks == ["nq"]
    assert set(params.fetch.files) == {"popqa", "wikipedia", "nq"}  # no dump is copied that nothing reads
    assert "not used: wikidata: triples need c4 too" in said
    text = Path("conf/profile/data.yaml").read_text()
    assert "#   wikidata: triples need c4 too" in text
    assert "an encoder (Hugging Face's layout). A small one is trained on your texts." in text


def test_without_passages_answers_come_from_elsewhere(checkout):
    write(checkout, FILES["popqa"] | FILES["nq"])
    gpt(checkout / "gpt2")
    said = init_profile.init(checkout, None)
    params = composed()
    assert (params.lms, params.parts.corpora, params.parts.answered) == ([], [], ["popqa"])
    assert any("longtail import-answers" in line for line in said)
    assert "not used: nq: needs passages to answer from (wikipedia or pile)" in said


def test_the_pile_alone_is_scored(checkout):
    write(checkout, FILES["pile"])
    init_profile.init(checkout, None)
    params = composed()
    assert (params.parts.scored, params.parts.answered, params.lms) == (["pile"], [], ["tiny"])
    assert (params.lm_text, params.tokenizer.text) == ("corpus", ["pile"])


def test_of_two_language_models_the_smaller_is_the_main_one(checkout):
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "Pythia-1.4b", positions=2048, parameters=1000)
    gpt(checkout / "hub/models--a--gpt2-small/snapshots/0123abcd", positions=1024, parameters=10)
    init_profile.init(checkout, None)
    params = composed()
    assert params.lms == ["gpt2-small", "pythia-1-4b"]
    assert params.tokenizer.path.endswith("0123abcd")
    assert 0 < params.answer.n_shots * 200 < 1024


def test_why_a_chat_template_is_not_used_and_when_to_use_it_stands_beside_the_model(checkout):
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "plain")
    instruct = gpt(checkout / "smol-instruct", parameters=20)
    write(instruct, {"tokenizer_config.json": {"chat_template": "{{ messages }}"}})
    said = init_profile.init(checkout, None)
    assert [line.rpartition("; ")[2] for line in said if "chat template" in line] == [
        "its chat template is not used (the profile says why)"
    ]
    above = Path("conf/profile/data.yaml").read_text().partition("\nlm:")[0].splitlines()[-1]
    assert above.startswith("# smol-instruct has a chat template")
    assert "the papers" in above
    assert "Set chat: true" in above
    assert not composed().lm["smol-instruct"].chat


@pytest.mark.parametrize(("positions", "gpu", "n_shots"), [(256, False, 0), (8192, False, 5), (8192, True, 15)])
def test_demonstrations_fit_beside_a_passage(checkout, monkeypatch, positions, gpu, n_shots):
    monkeypatch.setattr(init_profile, "this_machine", lambda: LAPTOP._replace(gpu=gpu))
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "gpt2", positions=positions)
    init_profile.init(checkout, None)
    assert composed().answer.n_shots == n_shots
    assert composed().answer.passage_tokens == min(150, positions // 4)  # GenRead's passage, beside its question
    assert composed().compute.device == ("cuda" if gpu else "cpu")


def test_a_large_model_gets_fewer_processes_with_more_threads_and_fewer_questions(checkout):
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "small")
    init_profile.init(checkout, None)
    small = composed()
    gpt(checkout / "small", parameters=1_500_000_000)
    init_profile.init(checkout, None, force=True)
    large = composed()
    assert (small.compute.workers, small.compute.threads) == (4, 1)
    assert (large.compute.workers, large.compute.threads) == (1, 4)
    assert small.answer.max_questions > large.answer.max_questions == 200
    gpt(checkout / "small", parameters=3_000_000_000)
    init_profile.init(checkout, None, force=True)
    assert composed().lm["small"].dtype == "bf16"


@pytest.mark.parametrize("parameters", [30_000_000, 1_500_000_000])
def test_init_and_plan_say_the_same_time(checkout, monkeypatch, parameters):
    monkeypatch.setattr(speed, "matrix_products", lambda threads, device, half: threads * LAPTOP.operations)
    monkeypatch.setattr(plan.os, "cpu_count", lambda: LAPTOP.cores)
    monkeypatch.setattr(workload, "sizes", lambda params: {"gpt2": workload.Size(parameters, 0, "here")})
    passages = "".join(f"{i}\tA text.\tVelm\n" for i in range(50_000))
    write(checkout, FILES["popqa"] | {"psgs_w100.tsv.gz": f"id\ttext\ttitle\n{passages}"})
    gpt(checkout / "gpt2", parameters=parameters)
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536, "vocab_size": 30_000}
    bert(checkout / "minilm")
    config = json.loads((checkout / "minilm/config.json").read_text()) | shape
    (checkout / "minilm/config.json").write_text(json.dumps(config))
    said = " ".join(init_profile.init(checkout, None))
    planned = plan.forecast(plan.read(yaml.safe_load(profiles.compose("data"))))

    def minutes(pattern: str, text: str) -> float:
        number, unit = re.search(pattern, text).groups()
        return float(number) * {"h": 60, "m": 1, "s": 1 / 60}[unit]

    assert "about 50,000 documents" in said
    assert "documents: wikipedia 50,000 (counted in its files)" in planned
    for said_of, planned_of in (("To embed .*?", "indexes"), ("Answers to .*?", "gpt2, answers")):
        (row,) = (line for line in planned if line.startswith(planned_of))
        of_plan = minutes(r"([\d.]+) (h|m|s)\w*  ", row)
        assert minutes(said_of + r"takes? about ([\d.]+) (h|m)", said) == pytest.approx(of_plan, rel=0.05, abs=1)


def test_the_number_of_replugs_documents_is_written_with_what_it_costs(checkout, monkeypatch):
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "gpt2"), bert(checkout / "encoder")
    init_profile.init(checkout, None)
    text = Path("conf/profile/data.yaml").read_text()
    assert "# These are 5 of the 10 prompts that a question makes, so fewer save the most time.\nreplug:\n" in text
    assert composed().replug.top_k == 5
    monkeypatch.setattr(init_profile, "this_machine", lambda: LAPTOP._replace(gpu=True))
    init_profile.init(checkout, None, force=True)
    assert composed().replug.top_k == 10


TITLED = "{title} {text}"
MEAN, CLS = {"pooling_mode_mean_tokens": True}, {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
NORMALIZE = [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Normalize"}]


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("minilm", {"modules.json": NORMALIZE, "1_Pooling/config.json": MEAN}, ("mean", "cosine", "", TITLED)),
        ("multi-qa-dot-v1", {"modules.json": NORMALIZE[:1], "1_Pooling/config.json": CLS}, ("cls", "dot", "", TITLED)),
        ("e5-base-v2", {}, ("mean", "cosine", "query: ", f"passage: {TITLED}")),
        (
            "bge-small-en-v1.5",
            {},
            ("cls", "cosine", "Represent this sentence for searching relevant passages: ", TITLED),
        ),
        ("contriever", {}, ("mean", "dot", "", TITLED)),
        (
            "own",
            {"config_sentence_transformers.json": {"prompts": {"query": "q: "}, "similarity_fn_name": "dot"}},
            ("mean", "dot", "q: ", TITLED),
        ),
    ],
)
def test_an_encoder_is_used_as_it_was_trained(checkout, name, files, expected):
    write(checkout, FILES["wikipedia"])
    bert(checkout / name)
    write(checkout / name, files | {"sentence_bert_config.json": {"max_seq_length": 256}})
    init_profile.init(checkout, None)
    made = main_retriever(composed())
    assert (made.pooling, made.similarity, made.query_prefix, made.document) == expected
    assert made.max_tokens == 256


def test_weights_may_be_pytorchs_older_files(checkout):
    write(checkout, FILES["wikipedia"] | FILES["popqa"])
    for folder, size in ((gpt(checkout / "gpt2"), 4000), (bert(checkout / "contriever"), 80)):
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(bytes(size))
    init_profile.init(checkout, None)
    assert (composed().lms, Path(main_retriever(composed()).path).name) == (["gpt2"], "contriever")
    assert init_profile.look(checkout).lms[0].parameters == 1000


def test_dprs_two_encoders_belong_together(checkout):
    write(checkout, FILES["wikipedia"])
    bert(checkout / "dpr-ctx", "DPRContextEncoder"), bert(checkout / "dpr-question", "DPRQuestionEncoder")
    init_profile.init(checkout, None)
    made = main_retriever(composed())
    assert (Path(made.path).name, Path(made.query_path).name) == ("dpr-ctx", "dpr-question")
    assert made.document == "{title} [SEP] {text}"
    assert (made.pooling, made.similarity) == ("cls", "dot")


def test_models_that_nothing_here_can_use_are_named(checkout):
    write(checkout, FILES["wikipedia"])
    bert(checkout / "reranker", "BertForSequenceClassification")
    model(checkout / "t5", {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True})
    (gpt(checkout / "old") / "model.safetensors").unlink()
    bert(checkout / "last", **{"1_Pooling__config.json": {"pooling_mode_lasttoken": True}})
    said = "\n".join(init_profile.init(checkout, None))
    assert "not used: reranker: a model of the kind BertForSequenceClassification" in said
    assert "not used: t5: a model of the kind T5ForConditionalGeneration" in said
    assert "not used: old: a model without weights" in said
    assert "not used: last: an encoder that pools neither by the mean nor by the first token" in said
    assert main_retriever(composed()).source == "train"


def test_of_files_that_exclude_each_other_one_is_used_and_the_other_named(checkout):
    write(checkout, FILES["wikipedia"] | {"a/enwiki-pages-articles.xml": "<mediawiki>"})
    write(checkout, {"a.tsv": FILES["popqa"]["popQA.tsv"], "z/popQA.tsv": FILES["popqa"]["popQA.tsv"]})
    write(checkout, {"one/0.jsonl": {"text": "One."}, "two/0.jsonl": {"text": "Two."}})
    said = init_profile.init(checkout, None)
    assert fetched(composed()) == {"wikipedia": ["psgs_w100.tsv.gz"], "popqa": ["popQA.tsv"], "pile": ["0.jsonl"]}
    assert "not used: a/enwiki-pages-articles.xml: psgs_w100.tsv.gz is used in its place" in said
    assert "not used: a.tsv: z/popQA.tsv is used in its place" in said
    assert "not used: two/0.jsonl: one/0.jsonl is used in its place" in said


def test_files_may_be_links_to_elsewhere_and_have_any_name(checkout, tmp_path):
    write(tmp_path / "elsewhere", FILES["wikipedia"])
    (checkout / "psgs_w100.tsv.gz").symlink_to(tmp_path / "elsewhere/psgs_w100.tsv.gz")
    write(
        checkout,
        {"new [1]*/popQA.tsv": FILES["popqa"]["popQA.tsv"]} | {f"p/{i}.jsonl": {"text": "a"} for i in range(4)},
    )
    (checkout / "loop").symlink_to(checkout)
    init_profile.init(checkout, None)
    assert fetched(composed())["popqa"] == ["popQA.tsv"]
    assert composed().fetch.files["pile"] == ["data/p/*.jsonl"]


def test_a_profile_is_not_written_over_without_force(checkout):
    write(checkout, FILES["popqa"])
    init_profile.init(checkout, "mine")
    path = Path("conf/profile/mine.yaml")
    path.write_text(path.read_text() + "seed: 1\n")
    with pytest.raises(LongtailError, match=r"conf/profile/mine\.yaml: is there already; --force .*--name"):
        init_profile.init(checkout, "mine")
    assert composed("mine").seed == 1
    init_profile.init(checkout, "mine", force=True)
    assert composed("mine").seed == 0


@pytest.mark.parametrize("name", ["A b", "../x", "null", "", "1"])
def test_a_name_that_no_profile_can_have_is_refused(checkout, name):
    write(checkout, FILES["popqa"])
    with pytest.raises(LongtailError, match=r"^--name "):
        init_profile.init(checkout, name)


def test_a_folder_of_any_name_gives_a_name(checkout, tmp_path):
    for folder, name in (("Ünder 2.0", "nder-2-0"), ("2021", "data-2021"), ("off", "data-off")):
        write(tmp_path / folder, FILES["popqa"])
        assert init_profile.init(tmp_path / folder, None)[-3] == f"  longtail run popqa --profile {name}"
        assert composed(name).profile == name


def test_a_folder_with_nothing_in_it_is_refused_with_what_was_looked_for(checkout):
    (checkout / ".hidden").write_text("id\ttext\ttitle\n")
    for folder in (checkout, checkout / "none"):
        with pytest.raises(LongtailError, match=r"popQA\.tsv.*psgs_w100\.tsv.*config\.json") as error:
            init_profile.init(folder, None)
        assert "\n" not in str(error.value)
    write(checkout, FILES["nq"])
    gpt(checkout / "gpt2")
    with pytest.raises(LongtailError, match="nothing in it that a run can be made of"):
        init_profile.init(checkout, None)
    assert not Path("conf/profile/data.yaml").exists()


def test_real_files_and_models_give_a_profile_whose_first_stages_run(checkout, real, real_models, monkeypatch):
    from pipelines import shards
    from pipelines.corpus import tokenizer
    from pipelines.retrieval import base_retriever
    from pipelines.sources.fetch import fetch

    for target in (real / "popqa/popQA.tsv", real / "passages/psgs_w100.tsv.gz"):
        (checkout / target.name).symlink_to(target)
    for name in ("smollm2-135m", "minilm"):
        (checkout / name).symlink_to(real_models / name)
    said = init_profile.init(checkout, None)
    params = composed()
    assert [line for line in said if line.startswith("not used")] == []
    assert params.lms == ["smollm2-135m"]
    made = main_retriever(params)
    assert (made.pooling, made.similarity, made.max_tokens) == ("mean", "cosine", 256)
    text = Path("conf/profile/data.yaml").read_text()
    assert "language model smollm2-135m: 135 M parameters, reads 8,192 tokens at once; its chat template" in text
    monkeypatch.setattr(shards, "SCRATCH", Path(".longtail"))
    assert fetch(Path("raw"), 0, None, params.fetch, params.wikidata, params.world)["files"] == 2
    tokenizer.copy_pretrained("tokenizer", params.tokenizer.path, params.tokenizer.revision, Path("tokenizer"))
    assert tokenizer.open_tokenizer(Path("tokenizer")).get_vocab_size() == 49152
    assert base_retriever.copy_pretrained(made, Path("retriever"))["parameters"] > 2e7


def test_hostile_names_of_files_and_folders_write_nothing_but_comments_and_globs(checkout):
    names = [label for label in hostile.LABELS if "/" not in label and "\0" not in label and len(label.encode()) < 200]
    names += ["x\nfetch:\n  root: elsewhere\n#", "\nlms: [evil]"]
    folder = checkout / "user's\nprofile: evil"
    for name in names:
        write(folder / name, FILES["popqa"] | {f"{name}.txt": "nothing known"})
        write(folder / name, {f"again{name}.tsv": FILES["popqa"]["popQA.tsv"]})
    (folder / os.fsdecode(b"\xff\xfe")).mkdir(parents=True)
    write(folder / os.fsdecode(b"\xff\xfe"), {"a.txt": "nothing known"})
    said = init_profile.init(folder, "hostile", lsr=False, force=False)
    text = Path("conf/profile/hostile.yaml").read_text(encoding="utf-8")
    written = yaml.safe_load(text)
    assert (written["profile"], written["lms"], written["fetch"]["root"]) == ("hostile", [], str(folder))
    assert not re.search(hostile.STEERING, text)
    assert any("used in its place" in line for line in said)
