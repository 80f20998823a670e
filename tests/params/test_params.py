"""A bad params.yaml is named by key, value and what is allowed, before any work."""

import re

import pytest
import yaml

from pipelines.errors import LongtailError
from pipelines.params import params, params_file
from pipelines.params.param_types import Section


@pytest.fixture
def values(root) -> dict:
    return yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))


def change(values: dict, changes: dict) -> None:
    """Put values in their places, which are named as in "lm.tiny.path"."""
    for key, value in changes.items():
        *parents, last = key.split(".")
        section = values
        for parent in parents:
            section = section[parent]
        section[last] = value


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("popqa.per_relaton", 10, ["popqa.per_relaton", "allowed here", "per_relation"]),
        ("lm.tiny.pathh", "x", ["lm.tiny.pathh", "allowed here", "path"]),
        ("extra", {}, ["extra", "allowed here", "popqa"]),
        ("popqa.per_relation", "many", ["popqa.per_relation", "'many'", "valid integer"]),
        ("popqa.per_relation", True, ["popqa.per_relation", "True", "valid integer"]),
        ("compute.threads", 0, ["compute.threads", "0", "greater than 0"]),
        ("compute.dask", "scheduler", ["compute.dask", "'scheduler'", "pattern"]),
        ("popqa.train_share", 1.5, ["popqa.train_share", "1.5", "less than or equal to 1"]),
        ("thresholds.train_share", 0.995, ["thresholds.train_share", "less than or equal to 0.99"]),
        ("corpus.pile.query_files", "*test*", ["corpus.pile.query_files", "test_files"]),
        ("queries.test_share", 0.0, ["parts", "scored", "test texts", "test_files"]),
        ("retriever.dense.document", "{title}", ["retriever.dense.document", "'{title}'", "should have {text}"]),
        ("retriever.dense.document", "{text} ({title})", ["retriever.dense.document", "{title}", "before"]),
        ("retriever.dense.document", "{title} {text} {text}", ["retriever.dense.document", "once"]),
        ("retriever.dense.vectors", {"wiki": "e5.index"}, ["retriever.dense.vectors", "wikipedia"]),
        ("answer.passage", "{titel}: {text}", ["answer.passage", "'{titel}: {text}'", "no other braces"]),
        ("replug.mixture", "sum", ["replug.mixture", "'sum'", "token_mixture", "sequence_mixture"]),
        ("lm", None, ["lm", "None"]),
        ("lm", {"gpt-2.5": {}}, ["gpt-2.5", "pattern"]),
        ("replug.top_k", 11, ["replug", "at most logprobs.top_k, 5"]),
        ("logprobs.datastore.shares", [1.0], ["logprobs.datastore.shares.0", "1.0", "less than 1"]),
        ("lms", [], ["parts", "scored", "need one of lms"]),
        ("lms", ["tiny", "tiny"], ["lms", "each once", "tiny"]),
        ("lms", ["gpt2"], ["lms", "'gpt2'", "of: tiny"]),
        ("parts.answered", "popqa", ["parts.answered is 'popqa': input should be a valid list"]),
        ("parts.corpora", ["wikipedia", "films"], ["parts.corpora", "films", "wikipedia, pile"]),
        ("parts.scored", ["wikipedia"], ["parts", "scored", "test texts"]),
        ("ways", ["closed_book", "dense"], ["thresholds.pairs", "genread", "should be among ways"]),
        ("parts.datastore", None, ["parts", "datastore"]),
        ("parts.knowledge", [], ["parts", "knowledge", "wikidata"]),
        ("parts.answered", ["wikitext"], ["parts.answered", "wikitext"]),
        ("retrievers", [], ["retrievers", "parts.corpora", "at least one"]),
        ("retrievers", ["bert"], ["retrievers", "names", "dense"]),
        ("retriever.lsr", {}, ["retriever.lsr", "not lsr"]),
        ("retriever.big_bert", {}, ["retriever.big_bert", "hyphens"]),
        ("parts.tuned", ["bert"], ["parts.tuned", "['bert']", "of: dense"]),
        ("parts.tuned", ["dense", "dense"], ["parts.tuned", "each once"]),
        ("ways", ["hybrid_bert"], ["ways", "hybrid_bert", "retrievers"]),
        ("ways", ["sparse"], ["ways", "sparse", "no such method", "closed_book, bm25"]),
        ("ways", ["dense", "dense"], ["ways", "each way once"]),
        ("ways", ["dense_dense"], ["ways", "should be dense"]),
        ("parts.tuned", [], ["ways", "lsr", "parts.tuned"]),
        ("lsr.lm_queries", 0, ["lsr.lm_queries", "at least 1 with lsr.queries: mixed"]),
        ("lsr.qa_queries", -1, ["lsr.qa_queries", "-1", "greater than or equal to 0"]),
        ("lsr.validation_queries", 0, ["lsr.keep", "should be last with lsr.validation_queries: 0"]),
        ("popqa.train_share", 0.0, ["lsr.queries", "'mixed'", "recall_at_1", "train_share"]),
        ("lsr.lm", "gpt2", ["lsr.lm", "'gpt2'", "should be one of lms, tiny"]),
    ],
)  # fmt: skip
def test_a_fault_names_key_value_and_what_is_allowed(values, key, value, says):
    change(values, {key: value})
    with pytest.raises(LongtailError) as error:
        params_file.parse(values)
    message = str(error.value)
    assert "\n" not in message
    assert "value error" not in message.lower()
    assert [part for part in says if part not in message] == []


NOTHING = {
    f"parts.{name}": [] for name in ("corpora", "scored", "tuned", "answered", "passages", "rules")
}


@pytest.mark.parametrize(
    ("allowed", "one_more", "says"),
    [
        ({"lsr.queries": "lm", "lsr.qa_queries": 0}, {"lsr.queries": "qa"}, r"lsr\.qa_queries .*at least 1 .*: qa"),
        ({"lsr.queries": "qa", "lsr.lm_queries": 0}, {"lsr.queries": "lm"}, r"lsr\.lm_queries .*at least 1 .*: lm"),
        (
            {"lsr.queries": "lm"},
            {"queries.validation_share": 0.0},
            r"lsr\.queries is 'lm': .* by bits_per_byte, which needs texts .*validation_share",
        ),
        ({}, {"replug": {"temprature": 1.0}}, r"unknown key replug\.temprature; allowed here: top_k, temperature"),
        (
            {"corpus.wikitext.test_lines": 5},
            {"corpus.wikitext.test_files": None},
            r"corpus\.wikitext\.test_lines .*joined in WikiText's test_files alone",
        ),
        ({"corpus.pile.test_files": "*test*"}, {"corpus.pile.test_lines": 5}, r"corpus\.pile\.test_lines .*joined in WikiText's test_files alone"),
        ({}, {"report": {}}, r"report\.bootstrap: field required"),
    ],
)  # fmt: skip
def test_what_one_key_allows_another_refuses(values, allowed, one_more, says):
    change(values, allowed)
    params_file.parse(values)
    change(values, one_more)
    with pytest.raises(LongtailError, match=says):
        params_file.parse(values)


@pytest.mark.parametrize("key", ["fetch.files", "wikidata.api", "lm.tiny.http"])
def test_an_address_with_a_secret_is_refused_and_not_repeated(values, key):
    def parse(address: str):
        change(
            values,
            {
                key: {"fetch.files": {"c4": [address]}, "lm.tiny.http": {"url": address}}.get(
                    key, address
                )
            },
        )
        return params_file.parse(values)

    secrets = ["access_token", "a=1&X-Amz-Signature", "api_key", "AWSAccessKeyId", "auth"]
    for address in (
        "me:s3cret@host.org/x",
        "s3cret@host.org/x",
        *(f"host.org/x?{name}=s3cret" for name in secrets),
    ):
        with pytest.raises(
            LongtailError, match=r"should have no password or token.*~/\.netrc"
        ) as error:
            parse(f"https://{address}")
        assert "s3cret" not in str(error.value)
        assert "host.org/x" in str(error.value)
    if key == "fetch.files":
        parse("https://host.org/x?author=me&revision=1&keyword=a")


def test_an_unreadable_file_is_one_line(tmp_path):
    path = tmp_path / "params.yaml"
    texts = {
        None: "no such file",
        "a: [": "not YAML .while parsing",
        "a: é": "not YAML .'utf-8' codec",
        "- a": "expected a mapping",
    }
    for text, says in texts.items():
        if text is not None:
            path.write_text(text, encoding="latin-1")
        with pytest.raises(LongtailError, match=rf"^{re.escape(str(path))}.*{says}[^\n]*$"):
            params_file.load_params(path)


class Settings(Section):
    seed: int
    popqa: params.PopQA


def test_a_stage_gets_only_the_sections_it_asks_for(root):
    settings = params_file.load_settings(Settings, root / "params.yaml")
    assert sorted(dict(settings)) == ["popqa", "seed"]
    with pytest.raises(ValueError, match="frozen"):
        settings.popqa.per_relation = 3
