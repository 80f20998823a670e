"""A bad params.yaml is named by key, value and what is allowed, before any work."""

from __future__ import annotations

import copy

import pytest
import yaml

from pipelines import params_file
from pipelines.errors import LongtailError


@pytest.fixture
def values(root) -> dict:
    return yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))


def changed(values: dict, key: str, value) -> dict:
    values = copy.deepcopy(values)
    *parents, last = key.split(".")
    section = values
    for parent in parents:
        section = section[parent]
    section[last] = value
    return values


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("popqa.per_relaton", 10, ["popqa.per_relaton", "allowed here", "per_relation"]),
        ("lm.tiny.training.stepz", 10, ["lm.tiny.training.stepz", "allowed here", "steps"]),
        ("extra", {}, ["extra", "allowed here", "popqa"]),
        ("popqa.per_relation", "many", ["popqa.per_relation", "'many'", "integer"]),
        ("popqa.per_relation", 2.5, ["popqa.per_relation", "2.5", "integer"]),
        ("popqa.per_relation", True, ["popqa.per_relation", "True", "integer"]),
        ("compute.threads", 0, ["compute.threads", "0", "greater than 0"]),
        ("compute.executor", "dask", ["compute.dask", "None", "tcp://host:8786", "compute.executor: dask"]),
        ("compute.dask", "scheduler", ["compute.dask", "'scheduler'", "pattern"]),
        ("popqa.train_share", 1.5, ["popqa.train_share", "1.5", "less than or equal to 1"]),
        ("corpus.pile.query_files", "*test*", ["corpus.pile.query_files", "test_files"]),
        ("queries.test_share", 0.0, ["parts", "scored", "test texts", "test_files"]),
        ("retriever.dense.document", "{title}", ["retriever.dense.document", "'{title}'", "should have {text}"]),
        ("retriever.dense.document", "{text} ({title})", ["retriever.dense.document", "{title}", "before"]),
        ("retriever.dense.document", "{title} {text} {text}", ["retriever.dense.document", "once"]),
        ("answer.passage", "{titel}: {text}", ["answer.passage", "'{titel}: {text}'", "no other braces"]),
        ("answer.passage", "{{text}}", ["answer.passage", "no other braces"]),
        ("replug.mixture", "sum", ["replug.mixture", "'sum'", "token_mixture", "sequence_mixture"]),
        ("popularity.month", "2021-13-01", ["popularity.month", "'2021-13-01'", "pattern"]),
        ("lm", None, ["lm", "None"]),
        ("lm", {"gpt-2.5": {}}, ["gpt-2.5", "pattern"]),
        ("replug.top_k", 11, ["replug", "at most logprobs.top_k, 10"]),
        ("logprobs.datastore.shares", [1.0], ["logprobs.datastore.shares.0", "1.0", "less than 1"]),
        ("lms", [], ["parts", "need one of lms"]),
        ("parts.corpora", ["wikipedia", "films"], ["parts.corpora", "films", "wikipedia, pile"]),
        ("parts.scored", ["wikipedia"], ["parts", "scored", "test texts"]),
        ("parts.datastore", None, ["parts", "datastore"]),
        ("parts.knowledge", [], ["parts", "knowledge", "wikidata"]),
        ("retrievers", [], ["parts", "corpora", "retrievers"]),
        ("retrievers", ["dense", "dense"], ["retrievers", "each once"]),
        ("retrievers", ["bert"], ["retrievers", "names", "dense"]),
        ("retriever.lsr", {}, ["retriever.lsr", "not lsr"]),
        ("retriever.big_bert", {}, ["retriever.big_bert", "hyphens"]),
        ("parts.tuned", ["bert"], ["parts", "tuned", "retrievers"]),
        ("parts.tuned", ["dense", "dense"], ["parts", "tuned"]),
        ("parts.ensembles", ["bert"], ["parts", "ensembles", "retrievers"]),
        ("parts.hybrids", ["bert"], ["parts", "hybrids", "retrievers"]),
        ("parts.rerankers", ["cross-encoder"], ["parts", "rerankers", "section reranker"]),
        ("parts.answered", ["nq"], ["parts.answered", "nq"]),
        ("lsr.lm_queries", 0, ["lsr.lm_queries", "at least 1 with lsr.queries: mixed"]),
        ("lsr.qa_queries", 0, ["lsr.qa_queries", "at least 1 with lsr.queries: mixed"]),
        ("lsr.qa_queries", -1, ["lsr.qa_queries", "-1", "greater than or equal to 0"]),
        ("lms", ["tiny", "tiny"], ["lms", "each once", "tiny"]),
        ("lms", ["gpt2"], ["lms", "'gpt2'", "of: tiny"]),
        ("lsr.validation_queries", 0, ["lsr.keep", "should be last with lsr.validation_queries: 0"]),
        ("lsr.lm", "gpt2", ["lsr", "lm should be one of lms, tiny; it is gpt2"]),
        ("lsr.lm", None, ["lsr", "lm should be one of lms, tiny; it is None"]),
    ],
)
def test_a_fault_names_key_value_and_what_is_allowed(values, key, value, says):
    with pytest.raises(LongtailError) as error:
        params_file.parse(changed(values, key, value))
    message = str(error.value)
    assert "\n" not in message
    assert [part for part in says if part not in message] == []


@pytest.mark.parametrize(("kind", "other"), [("lm", "qa"), ("qa", "lm")])
def test_no_number_is_asked_for_of_queries_that_lsr_does_not_learn_from(values, kind, other):
    values["lsr"] |= {"queries": kind, f"{other}_queries": 0}
    assert getattr(params_file.parse(values).lsr, f"{other}_queries") == 0
    values["lsr"]["queries"] = other
    with pytest.raises(LongtailError, match=rf"lsr\.{other}_queries .*at least 1 with lsr\.queries: {other}"):
        params_file.parse(values)


def test_validation_chooses_the_encoder_or_does_not_end_training(values):
    values["lsr"] |= {"keep": "last", "validation_queries": 0}
    assert params_file.parse(values).lsr.validation_queries == 0
    values["lsr"]["patience"] = 2
    with pytest.raises(LongtailError, match=r"lsr\.keep is 'last': .*should be best with lsr\.patience"):
        params_file.parse(values)


def test_ensembles_need_their_encoder(values):
    values["parts"] |= {"corpora": [], "scored": [], "datastore": None, "tuned": [], "answered": []}
    values["parts"] |= {"benchmarks": [], "passages": [], "rules": []}
    values["retrievers"] = []
    with pytest.raises(LongtailError, match=r"parts: .*ensembles: should be among retrievers"):
        params_file.parse(values)


def test_a_misspelt_key_is_named_rather_than_the_right_one_that_is_missing(values):
    values["replug"]["temprature"] = values["replug"].pop("temperature")
    with pytest.raises(LongtailError, match=r"unknown key replug\.temprature; allowed here: top_k, temperature"):
        params_file.parse(values)


@pytest.mark.parametrize(
    "address",
    [
        "https://me:s3cret@host.org/x.gz",
        "https://s3cret@host.org/x.gz",
        "https://host.org/x.gz?access_token=s3cret",
        "https://host.org/x.gz?a=1&X-Amz-Signature=s3cret",
        "https://host.org/x.gz?api_key=s3cret",
        "https://host.org/x.gz?AWSAccessKeyId=s3cret",
        "https://host.org/x.gz?auth=s3cret",
    ],
)
@pytest.mark.parametrize("where", ["files", "api", "url"])
def test_an_address_with_a_secret_is_refused_and_not_repeated(values, address, where):
    if where == "files":
        values["fetch"]["files"] = {"c4": [address]}
    elif where == "api":
        values["popularity"]["redirects_api"] = address
    else:
        values["lm"][values["lms"][0]]["http"] = {"url": address}
    with pytest.raises(LongtailError, match=r"should have no password or token.*~/\.netrc") as error:
        params_file.parse(values)
    assert "s3cret" not in str(error.value)
    assert "host.org/x.gz" in str(error.value)


def test_an_address_with_an_author_or_a_revision_has_no_secret(values):
    address = "https://host.org/x.gz?author=me&revision=1&keyword=a"
    values["fetch"]["files"] = {"c4": [address]}
    assert params_file.parse(values).fetch.files == {"c4": [address]}


def test_a_missing_key_is_named(values):
    del values["index"]["kind"]
    with pytest.raises(LongtailError, match=r"index\.kind is missing"):
        params_file.parse(values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no such file"),
        ("a: [", "not YAML"),
        ("a: é", "not YAML"),
        ("- a", "expected a mapping"),
        ("", "expected a mapping"),
    ],
)
def test_an_unreadable_file_is_one_line(tmp_path, text, says):
    path = tmp_path / "params.yaml"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(LongtailError) as error:
        params_file.load("seed", path=path)
    assert says in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_stage_gets_only_the_sections_it_asks_for(root):
    chosen = params_file.load("seed", "popqa", path=root / "params.yaml")
    assert sorted(vars(chosen)) == ["popqa", "seed"]


def test_values_can_not_be_changed(root):
    chosen = params_file.load("popqa", path=root / "params.yaml")
    with pytest.raises(ValueError, match="frozen"):
        chosen.popqa.per_relation = 3
