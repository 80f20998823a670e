"""Stage answer: every method's prompts and table, and the same ones whatever the sharding, order or interruption."""

import contextlib
import itertools
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import completions_server
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml

from pipelines import params, shards
from pipelines.answering import answer, passages
from pipelines.lm import open_lm
from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Generation
from pipelines.lm.local import LocalModel
from pipelines.methods import METHODS

pytestmark = pytest.mark.usefixtures("workplace")

CHOSEN = params.Answer(max_questions=30, n_shots=3, new_tokens=5, passages=1, passage="{text}", passage_tokens=8)
GOLDEN = Path(__file__).with_name("prompts.txt")
K = 2
REPLUG = params.Replug(top_k=K, temperature=1.0, mixture="token_mixture", vote=False)


class EchoingLM:
    """Answers with the last word of the passage where there is one, else with the last word of the question."""

    name, max_tokens, mixes, votes = "echo", 1000, True, True

    def __init__(self, fail_after: int = 10**9) -> None:
        self.asked, self.fail_after = [], fail_after

    def generate(self, prompts, max_tokens, stop="\n"):
        self.asked += prompts
        if len(self.asked) > self.fail_after:
            raise KeyboardInterrupt
        blocks = [(p.document + p.context).strip().split("\n\n") for p in prompts]
        words = [(own[-2] if len(own) > 1 and "Q:" not in own[-2] else own[-1]).split() for own in blocks]
        return [Generation(f" {own[-1]}", -0.5, len(own), 1) for own in words]

    def generate_mixture(self, prompts, log_weights, max_tokens, stop="\n", *, sequence_mixture=False):
        """The heaviest document's answer."""
        assert log_weights.shape == (len(prompts) / K, K)
        return self.generate(prompts, max_tokens, stop)[:: log_weights.shape[1]]

    def seen(self, prompts, max_tokens):
        return prompts


def find(texts):
    """The page of the subject for even questions, a namesake's for odd ones; the other one second."""
    rows = []
    for number in (int(text.split()[2]) for text in texts):
        two = [(f"d{number}", f"S{number}", f"S{number} is gold{number}")]
        two.insert(number % 2 == 0, (f"e{number}", f"S{number} (film)", f"S{number} is something else"))
        rows.append([list(column) for column in zip(*two, strict=True)])
    ids, titles, found = zip(*rows, strict=True)
    nothing = [0] * len(rows)
    return pa.table(
        [found, ids, titles, [[0.5, 0.25]] * len(rows), nothing, nothing, [0.25] * len(rows)], schema=passages.SCHEMA
    )


def top(texts):
    """The first of `find` alone."""
    lists = [pc.list_slice(column, 0, 1) if pa.types.is_list(column.type) else column for column in find(texts).columns]
    return pa.table(lists, schema=passages.SCHEMA)


@pytest.fixture
def questions() -> pa.Table:
    n = 60
    return pa.table(
        {
            "question_id": [f"q{i:02d}" for i in range(n)],
            "relation": [f"P{i % 5}" for i in range(n)],
            "subj": [f"S{i}" for i in range(n)],
            "s_wiki_title": [f"S{i}" for i in range(n)],
            "question": [f"What is {i} ?" for i in range(n)],
            "possible_answers": [[f"gold{i}"] for i in range(n)],
            "split": ["train" if i % 3 == 0 else "test" for i in range(n)],
        }
    )


def source(method, lm, at_once=256):
    if method == "genread":
        return passages.Source(passages.written(lm, CHOSEN.passage_tokens).find, at_once, written=True)
    finds = {"closed_book": None, "replug": find, "replug_lsr": find}.get(method, top)
    return finds and passages.Source(finds, at_once, written=False)


def ask(questions, method="dense", lm=None, chosen=CHOSEN, key="k", at_once=256, dataset="popqa", **more):
    setup = {"source": source(method, lm := lm or EchoingLM(), at_once), "replug": REPLUG} | more
    table, _ = answer.answer(questions, answer.Setup(dataset, method, lm, answer=chosen, seed=0, key=key, **setup))
    return table


def test_only_test_questions_are_asked_and_at_most_so_many(questions):
    table = ask(questions)
    split = dict(zip(questions["question_id"].to_pylist(), questions["split"].to_pylist(), strict=True))
    asked = table["question_id"].to_pylist()
    assert len(asked) == 30
    assert asked == sorted(asked)
    assert {split[one] for one in asked} == {"test"}


def test_evidence_says_whose_page_it_is_and_whether_it_holds_an_answer(questions):
    for row in ask(questions).to_pylist():
        even = int(row["question_id"][1:]) % 2 == 0
        assert (row["correct"], row["correct_word"], row["doc_has_answer"]) == (even, even, even)
        assert (row["doc_is_subject"], row["doc_is_namesake"]) == (even, not even)
        assert row["prediction"] == (f"gold{int(row['question_id'][1:])}" if even else "else")


def test_an_ensembles_document_is_the_heaviest_and_its_evidence_that_of_any(questions):
    table = ask(questions, "replug")
    assert table["doc_has_answer"].to_pylist() == [True] * 30
    for row in table.to_pylist():
        even = int(row["question_id"][1:]) % 2 == 0
        assert (row["doc_is_subject"], row["similarity"], row["margin"]) == (even, 0.5, 0.25)
    assert set(table["lm_calls"].to_pylist()) == {K}


def test_documents_of_an_ensemble_weigh_by_their_own_similarity(questions):
    class Weighing(EchoingLM):
        def generate_mixture(self, prompts, log_weights, max_tokens, stop="\n", *, sequence_mixture=False):
            first = 1 / (1 + np.exp(-0.25))  # similarities 0.5 and 0.25, temperature 1
            np.testing.assert_allclose(np.exp(log_weights), [[first, 1 - first]] * len(log_weights))
            return super().generate_mixture(prompts, log_weights, max_tokens, stop)

    assert ask(questions, "replug", Weighing()).num_rows == 30


def test_part_of_a_word_is_right_by_the_published_rule_and_no_whole_word(questions):
    place = questions.column_names.index("possible_answers")
    parts = questions.set_column(place, "possible_answers", pa.array([[f"old{i}"] for i in range(60)]))
    for row in ask(parts).to_pylist():
        even = int(row["question_id"][1:]) % 2 == 0
        assert (row["correct"], row["correct_word"], row["doc_has_answer"]) == (even, False, False)


def test_the_subjects_page_is_known_by_its_title_and_not_by_the_subjects_name(questions):
    place = questions.column_names.index("s_wiki_title")
    films = questions.set_column(place, "s_wiki_title", pa.array([f"S{i} (film)" for i in range(60)]))
    for row in ask(films).to_pylist():
        odd = int(row["question_id"][1:]) % 2 == 1
        assert (row["doc_is_subject"], row["doc_is_namesake"]) == (odd, not odd)


def test_the_seconds_of_a_question_are_a_share_of_all(questions):
    assert answer._metrics(ask(questions), 60.0)["seconds_per_question"] == 2.0


def test_closed_book_has_no_evidence(questions):
    table = ask(questions, "closed_book")
    assert table.schema == answer.SCHEMA
    nulls = (
        "doc_id",
        "doc_title",
        "similarity",
        "margin",
        "doc_has_answer",
        "doc_is_subject",
        "doc_is_namesake",
        "passage",
    )
    assert {name: table[name].null_count for name in nulls} == dict.fromkeys(nulls, 30)


def test_genread_reads_what_the_model_wrote_and_counts_both_calls(questions):
    rows = ask(questions, "genread", chosen=CHOSEN.model_copy(update={"n_shots": 0})).to_pylist()
    for row in rows:
        assert row["passage"] == "?"  # the last word of the prompt for it
        assert (row["doc_id"], row["doc_title"], row["similarity"]) == (None, None, None)
        assert row["doc_has_answer"] is False
        assert (row["lm_calls"], row["new_tokens"], row["prompt_tokens"]) == (2, 2, 15 + 1)


def test_a_subject_whose_page_is_not_known_is_neither_its_own_nor_a_namesakes(questions):
    table = ask(questions.drop_columns(["s_wiki_title"]))
    assert table["doc_is_subject"].null_count == table["doc_is_namesake"].null_count == 30
    assert table["doc_has_answer"].null_count == 0


def test_prompts_are_the_golden_ones(questions):
    """To write them anew, after a change that is meant: delete the file and run this test."""
    said = []
    for dataset in ("popqa", "entityquestions"):
        for method in ("closed_book", "bm25", "genread", "replug"):
            for n_shots in (0, 3):
                lm, chosen = EchoingLM(), CHOSEN.model_copy(update={"n_shots": n_shots, "max_questions": 2})
                hashes = ask(questions, method, lm, chosen, f"{n_shots}", dataset=dataset)["prompt_hash"].to_pylist()
                said.append(f"=== {dataset} {method} {n_shots} shots: {' '.join(hashes)}")
                said += [f"--- document: {prompt.document!r}\n{prompt.context}" for prompt in lm.asked]
    text = "\n".join(said) + "\n"
    if not GOLDEN.exists():
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("method", ["closed_book", "dense", "genread", "replug"])
@pytest.mark.parametrize("size", [1, 7])
def test_neither_shards_nor_order_change_a_prompt_or_an_answer(questions, size, method, monkeypatch):
    whole = ask(questions, method, key="whole")
    monkeypatch.setattr(answer, "SHARD", size)
    shuffled = questions.take(np.random.default_rng(0).permutation(questions.num_rows))
    assert ask(shuffled, method, key=f"shards of {size}", at_once=size + 1).equals(whole)


@pytest.mark.parametrize(
    ("method", "top_k", "n_shots", "served", "expected"),
    [
        ("closed_book", 10, 15, False, 64),
        ("dense", 10, 0, False, 64),
        ("dense", 10, 5, False, 21),
        ("dense", 10, 5, True, 64),
        ("replug", 10, 0, False, 6),
        ("replug_lsr", 10, 5, False, 2),
        ("replug", 100, 15, False, 1),
    ],
)
def test_a_slow_method_has_fewer_questions_in_a_shard(method, top_k, n_shots, served, expected):
    chosen, replug = CHOSEN.model_copy(update={"n_shots": n_shots}), REPLUG.model_copy(update={"top_k": top_k})
    finds = source(method, EchoingLM())
    setup = answer.Setup("popqa", method, EchoingLM(), finds, chosen, replug, 0, "k", object() if served else None)
    assert setup.shard == expected


def test_progress_is_in_questions_and_comes_before_all_are_answered(questions, monkeypatch):
    shown = []
    bar = SimpleNamespace(update=shown.append)

    def tqdm(total, initial, desc, unit, mininterval):
        shown.append((total, initial, unit))
        return contextlib.nullcontext(bar)

    monkeypatch.setattr(shards, "tqdm", tqdm)
    ask(questions, "replug", chosen=CHOSEN.model_copy(update={"n_shots": 15}), key="progress")
    begun = shown.index((30, 0, "question"))
    assert shown[begun + 1 :] == [4] * 7 + [2]
    ask(questions, "replug", chosen=CHOSEN.model_copy(update={"n_shots": 15}), key="progress")
    assert shown[-1] == (30, 30, "question"), "what a first run finished counts"


@pytest.mark.parametrize("method", ["dense", "genread"])
def test_a_killed_run_goes_on_where_it_stopped(questions, method, monkeypatch):
    monkeypatch.setattr(answer, "SHARD", 10)
    all_of_it, cut, again = EchoingLM(), EchoingLM(fail_after=20), EchoingLM()
    whole = ask(questions, method, lm=all_of_it, key="whole", at_once=5)
    with pytest.raises(KeyboardInterrupt):
        ask(questions, method, lm=cut, key="cut", at_once=5)
    assert ask(questions, method, lm=again, key="cut", at_once=5).equals(whole)
    assert len(again.asked) == len(all_of_it.asked) - 20


def test_seconds_are_those_of_all_shards_in_whichever_run(questions, monkeypatch):
    """The clock goes on by a second a look: a shard takes one, of answers as of passages."""
    monkeypatch.setattr(answer, "SHARD", 10)
    monkeypatch.setattr(answer, "time", clock := SimpleNamespace(monotonic=itertools.count().__next__))
    monkeypatch.setattr(passages, "time", clock)

    def setup(lm, key):
        return answer.Setup("popqa", "dense", lm, source("dense", lm, 7), CHOSEN, REPLUG, 0, key)

    table, taken = answer.answer(questions, setup(EchoingLM(), "whole"))
    whole = taken.seconds
    assert [batch.questions for batch in taken.answers] == [10, 10, 10]
    assert sum(batch.questions for batch in taken.searches) > 30, "demonstrations, too"
    assert whole == sum(len([*folder.iterdir()]) for folder in Path(".longtail/shards").iterdir()) > 6
    with pytest.raises(KeyboardInterrupt):
        answer.answer(questions, setup(EchoingLM(fail_after=20), "cut"))
    for _ in range(2):  # the second finds all shards finished
        resumed, taken_resumed = answer.answer(questions, setup(EchoingLM(), "cut"))
        assert taken_resumed.seconds == whole
        assert taken_resumed == taken
        assert resumed.schema.equals(table.schema, check_metadata=True), "a table holds no times"
        assert resumed.schema.metadata is None


def test_a_demonstration_shows_the_triples_object(questions):
    """And the first answer where a question set has no triples."""
    lists = pa.array([[f"alias{i}", f"object{i}"] for i in range(60)])
    several = questions.set_column(questions.schema.get_field_index("possible_answers"), "possible_answers", lists)
    with_objects = several.append_column("obj", pa.array([f"object{i}" for i in range(60)]))
    for table, shown in ((with_objects, "object"), (several, "alias")):
        ask(table, "closed_book", lm := EchoingLM(), key=shown)
        demonstrations = [re.findall(r"Q: What is (\d+) \? A: (\w+)", prompt.context) for prompt in lm.asked]
        assert {len(few) for few in demonstrations} == {3}
        assert all(text == f"{shown}{number}" for few in demonstrations for number, text in few)


def test_nothing_is_left_of_answers_that_are_forgotten(questions):
    ask(questions, "genread", key="k")
    assert sum(1 for _ in Path(".longtail/shards").iterdir()) == 2
    answer.forget("popqa", "echo", "genread", "k")
    assert not list(Path(".longtail/shards").iterdir())


def test_no_questions_give_an_empty_table(questions):
    assert ask(questions.slice(0, 0)).equals(answer.SCHEMA.empty_table())


def test_the_stage_names_what_is_allowed(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["answer", "popqa", "tiny", "sparse"])
    with pytest.raises(SystemExit):
        answer.main()
    said = capsys.readouterr().err
    assert all(method in said for method in METHODS)
    assert not Path("data").exists()


def test_a_model_that_can_not_mix_is_refused_an_ensemble_before_any_work(questions, capsys, monkeypatch, root):
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")
    shutil.copy(root / "params.yaml", "params.yaml")
    lm = EchoingLM()
    lm.mixes = False
    monkeypatch.setattr(open_lm, "open_lm", lambda *_: lm)
    monkeypatch.setattr("sys.argv", ["answer", "popqa", "tiny", "replug"])
    with pytest.raises(SystemExit):
        answer.main()
    said = capsys.readouterr().err
    assert said.startswith("error: answer@popqa-tiny-replug: echo shows only its likeliest next tokens")
    assert said.endswith("set replug.vote: true in params.yaml\n")
    assert not lm.asked


@pytest.mark.parametrize(("of_lm", "shown"), [(None, 2), (0, 0), (4, 4)])
def test_the_stage_shows_as_many_demonstrations_as_the_language_model_asks_for(
    questions, monkeypatch, root, of_lm, shown
):
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"]["n_shots"], values["lm"]["tiny"]["n_shots"] = 2, of_lm
    Path("params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    lm = EchoingLM()
    lm.usage = {}
    monkeypatch.setattr(open_lm, "open_lm", lambda *_: lm)
    monkeypatch.setattr("sys.argv", ["answer", "popqa", "tiny", "closed_book"])
    answer.main()
    assert {prompt.context.count("A: gold") for prompt in lm.asked} == {shown}


def test_two_sections_of_the_same_weights_answer_in_one_run_with_their_own_demonstrations(questions, monkeypatch, root):
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"]["n_shots"], values["lms"] = 2, ["tiny", "zero"]
    values["lm"]["zero"] = values["lm"]["tiny"] | {"n_shots": 0}
    Path("params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    hashes = {}
    for name, shown in (("tiny", 2), ("zero", 0), ("tiny", 2)):
        lm = EchoingLM()
        lm.name, lm.usage = name, {}
        monkeypatch.setattr(open_lm, "open_lm", lambda *_, lm=lm: lm)
        monkeypatch.setattr("sys.argv", ["answer", "popqa", name, "closed_book"])
        answer.main()
        assert {prompt.context.count("A: gold") for prompt in lm.asked} == {shown}
        table = pq.read_table(f"data/predictions/popqa/{name}/closed_book.parquet")
        assert hashes.setdefault(name, table["prompt_hash"].to_pylist()) == table["prompt_hash"].to_pylist()
    assert not set(hashes["tiny"]) & set(hashes["zero"])


# ---------------------------------------------------------------------- real models, here and behind HTTP


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.language_model(tmp_path_factory.mktemp("answering") / "served")


@pytest.fixture(scope="module")
def server(folder):
    with completions_server.running(folder) as running:
        yield running


def local(folder):
    return LocalModel(folder, name="served", dtype="fp32", batch_tokens=1024, device="cpu", threads=1)


FEW = CHOSEN.model_copy(update={"max_questions": 6, "n_shots": 0})


@pytest.mark.parametrize("method", ["closed_book", "dense", "genread", "replug"])
def test_a_server_answers_by_every_method_and_each_answer_has_its_cost(questions, method, folder, server, tmp_path):
    server.reset()
    settings = completions_server.settings(server.url, folder, prompt_price=2.0, completion_price=6.0)
    lm = HttpModel(folder, settings, None, tmp_path / "kept")
    before = lm.usage
    vote = REPLUG.model_copy(update={"vote": True})
    table = ask(questions, method, lm, FEW, server=settings.http, replug=vote)
    spent = {name: lm.usage[name] - value for name, value in before.items()}
    assert sum(table["cost"].to_pylist()) == pytest.approx(spent["lm_cost"]) != 0
    assert sum(table["prompt_tokens"].to_pylist()) == spent["lm_prompt_tokens"]
    assert sum(table["new_tokens"].to_pylist()) == spent["lm_completion_tokens"]
    here = ask(questions, method, local(folder), FEW, key="here")
    assert here["cost"].to_pylist() == [0.0] * 6
    same = ["question_id", "prompt_hash", "prompt_tokens", "lm_calls", "doc_has_answer", "passage"]
    if method != "replug":  # there the vote decides, here the mixture
        same += ["prediction", "correct"]
    assert table.select(same).equals(here.select(same))


def test_tokens_and_cost_that_a_server_does_not_show_are_not_made_up(questions, folder, server, tmp_path):
    server.reset()
    settings = completions_server.settings(server.url, None, prompt_price=2.0)
    lm = HttpModel(folder, settings, None, tmp_path / "kept")
    table = ask(questions, "dense", lm, FEW, server=settings.http)
    assert table["prompt_tokens"].null_count == table["cost"].null_count == 6
    assert table["new_tokens"].null_count == 0


def test_a_passage_counts_only_as_far_as_the_model_saw_it(questions, folder):
    """Demonstrations go first where room is short, then the far end of the passage."""
    lm = local(folder)

    def long(texts):
        table = top(texts)
        found = [
            ["gold " * 4 + one[0] + " filler" * (150 if "gold" in one[0] else 1)] for one in table["texts"].to_pylist()
        ]
        return table.set_column(0, "texts", pa.array(found))

    for n_shots in (0, 3):  # a document keeps its beginning; a context, of which it then is part, its end
        chosen = CHOSEN.model_copy(update={"n_shots": n_shots})
        found = passages.Source(long, 99, written=False)
        table = ask(questions, "dense", lm, chosen, f"{n_shots} shots", source=found)
        holds = {int(row["question_id"][1:]): row["doc_has_answer"] for row in table.to_pylist()}
        assert {holds[n] for n in holds if n % 2 == 0} == {n_shots == 0}
