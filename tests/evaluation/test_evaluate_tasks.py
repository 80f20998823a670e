"""MMLU and open-domain QA: the ensembles by hand, the room for demonstrations, the metrics, the
stage."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml
from benchmark_files import read

from pipelines import intervals
from pipelines.answering import passages
from pipelines.errors import LongtailError
from pipelines.evaluation import evaluate_tasks, task_figures
from pipelines.evaluation.answer_letters import answer_by_letter
from pipelines.evaluation.task_items import Item, Task
from pipelines.lm import open_lm
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.params import params, params_file
from pipelines.retrieval import bm25_build
from pipelines.work import workers

pytestmark = pytest.mark.usefixtures("workplace")
REPLUG = params.Replug(top_k=3, temperature=1.0, mixture="token_mixture", vote=False)


class FakeLM:
    """Prefers the letter, or says the word, that stands last in the knowledge of a prompt."""

    name, max_tokens, mixes, votes, scores, begins, usage = "fake", 400, True, True, True, " ", {}

    def token_id(self, text):
        return "ABCD".index(text.strip())

    def _hint(self, prompt):
        seen = (prompt.document + prompt.context).split("Question:")[-2:][0]
        return seen.split()[-1] if "Knowledge:" in seen else "A"

    def seen(self, prompts, max_tokens):
        """A word is a token; a context that is too long loses its beginning."""
        room = self.max_tokens - max_tokens
        return [
            replace(prompt, context=" ".join(prompt.context.split(" ")[-room:]))
            for prompt in prompts
        ]

    def next_token(self, prompts):
        chances = np.full((len(prompts), 5), 0.1, dtype=np.float32)
        for row, prompt in zip(chances, prompts, strict=True):
            row[self.token_id(self._hint(prompt))] = 0.6
        return np.log(chances)

    def generate(self, prompts, max_tokens, stop="\n"):
        return [Generation(f" {self._hint(p)}", -0.1, len(p.context)) for p in prompts]

    def generate_mixture(
        self, prompts, log_weights, max_tokens, stop="\n", *, sequence_mixture=False
    ):
        return self.generate(prompts[:: log_weights.shape[1]], max_tokens)


class Voting(FakeLM):
    mixes, generate_mixture = False, None


class Closed(Voting):
    votes = scores = False

    def token_id(self, text):
        raise LongtailError("shows no next tokens")


def test_mmlu_mixes_probabilities_over_documents():
    class Mixed(FakeLM):
        def token_id(self, text):
            assert text[0] == " "
            return super().token_id(text)

        def next_token(self, prompts):
            return np.log(
                np.array([[0.9, 0.1, 0, 0, 0], [0, 0.5, 0.4, 0.1, 0], [0, 0.5, 0.4, 0.1, 0]]) + 1e-9
            )

    # A: 0.9 * 0.3 = 0.27; B: 0.1 * 0.3 + 0.5 * 0.7 = 0.38
    assert answer_by_letter(Mixed(), [None] * 3, np.log([[0.3, 0.35, 0.35]])) == ["B"]
    assert answer_by_letter(Mixed(), [None] * 3, np.log([[0.8, 0.1, 0.1]])) == ["A"]


def test_a_letter_of_two_tokens_is_scored_as_text():
    class SmallVocabulary(FakeLM):
        def token_id(self, text):
            if text == " C":
                raise LongtailError("' C' is 2 tokens")
            return super().token_id(text)

        def next_token(self, prompts):
            return np.log(np.array([[0.2, 0.5, 0.0, 0.1]] * len(prompts)) + 1e-9)

        def score(self, prompts, continuations):
            assert continuations == [" C", " C"]
            return Scores(
                [np.log([0.9, 0.6]), np.log([0.6, 0.8])], []
            )  # C: 0.54 and 0.48 against B's 0.5

    assert answer_by_letter(SmallVocabulary(), [Prompt("")] * 2, np.zeros((2, 1))) == ["C", "B"]


def search(queries):
    """Three documents a query; the best two end in the letter or word that is right for 3 of 4
    items."""
    hints = [q.split()[-1].rstrip("?") for q in queries]
    letters = ["ABCD"[int(hint) % 4] for hint in hints]
    texts = [[f"one {x}", f"two {x}", "three A"] for x in letters]
    return pa.table({"texts": texts, "similarities": [[0.5] * 3] * len(queries)})


def evaluate(task, method, lm, search, key="k", replug=REPLUG):
    return evaluate_tasks.evaluate_task(task, method, lm, search, 5, replug, key)


def open_task(*queries, shown=()):
    items, shots = (
        [Item(name, "", name, f"{name}:", ["the one", "Number"]) for name in of]
        for of in (queries, shown)
    )
    return Task("nq", items, {"": shots}, "tasks.qa_shots", options=False)


def test_documents_with_the_answer_raise_accuracy(raw, monkeypatch):
    """All questions are searched for at once, because a search passes over the whole corpus."""
    task, asked = read(raw, "mmlu"), []
    closed = evaluate(task, "closed_book", FakeLM(), None, "c")
    whole = evaluate(task, "replug", FakeLM(), search, "r")
    assert whole.schema == evaluate_tasks.SCHEMA
    assert whole["correct"].to_pylist() == [True] * 40
    assert sum(closed["correct"].to_pylist()) == sum(item.answers == ["A"] for item in task.items)
    monkeypatch.setitem(workers.PROMPTS_PER_SHARD, "cpu", 30)
    for method, finds, sizes in (
        ("closed_book", None, [30, 10]),
        (
            "replug",
            lambda queries: asked.append(len(queries)) or search(queries),
            [10] * 4,
        ),  # three prompts each
    ):
        assert evaluate(task, method, FakeLM(), finds, "sizes").equals(whole if finds else closed)
        (folder,) = Path(".longtail/work").glob(f"evaluate_tasks@*-{method}/sizes")
        assert [pq.read_table(file).num_rows for file in sorted(folder.iterdir())] == sizes
    assert [number for number in asked if number >= len(task.items)] == [len(task.items)]
    assert len(asked) <= len(task.shots) + 1


def test_open_answers_are_those_of_the_mixture():
    class Saying(FakeLM):
        def generate_mixture(
            self, prompts, log_weights, max_tokens, stop="\n", *, sequence_mixture=False
        ):
            assert (len(prompts), max_tokens) == (6, 5)
            np.testing.assert_allclose(np.exp(log_weights), 1 / 3)
            return [Generation(text, -0.1, 1) for text in (" Number", " Number three")]

    answered = evaluate(open_task("who is 0", "who is 1"), "replug", Saying(), search)
    assert answered["correct"].to_pylist() == [True, False]


def test_documents_weigh_by_their_similarity(raw):
    def similar(queries):
        found = search(queries).set_column(
            0, "texts", pa.array([["one B", "two A", "three A"]] * len(queries))
        )
        return found.set_column(1, "similarities", pa.array([[1.0, 0.5, 0.5]] * len(queries)))

    for temperature, letter in ((1.0, "A"), (0.1, "B")):  # lambda of the first: 0.45 and 0.99
        replug = REPLUG.model_copy(update={"temperature": temperature})
        rows = evaluate(read(raw, "mmlu"), "replug", FakeLM(), similar, f"{temperature}", replug)
        assert set(rows["prediction"].to_pylist()) == {letter}


def test_the_answer_a_is_a_letter_and_no_article():
    """A server may show none of the letters, and then write none."""

    class Sure(FakeLM):
        scores = False

        def next_token(self, prompts):
            return np.array(
                [[0.0 if letter == said else -np.inf for letter in "ABCD"]] * len(prompts)
            )

        def generate(self, prompts, max_tokens, stop="\n"):
            return [Generation("Abacus, BBC", -1.0, 1)] * len(prompts)

    task = Task(
        "mmlu",
        [Item("1", "virology", "Which?", "Which?", ["A"])],
        {"virology": []},
        "",
        options=True,
    )
    for said, right in (("A", True), ("B", False), ("", False)):
        (row,) = evaluate(task, "closed_book", Sure(), None, f"says {said}").to_pylist()
        assert (row["prediction"], row["correct"]) == (said, right)


def long_documents(queries):
    """A document for each question, which is long for virology's."""
    texts = [["long " * (500 if "virology" in query else 1) + "D"] for query in queries]
    return pa.table({"texts": texts, "similarities": [[1.0]] * len(queries)})


def test_what_is_too_long_is_left_out(raw, capsys):
    """A subject of MMLU, by every method; what is too long for the documents in one prompt, by that
    method alone."""
    task, lm = read(raw, "mmlu"), FakeLM()
    answered = [
        evaluate(task, "closed_book", lm, None),
        evaluate(task, "replug", lm, long_documents),
    ]
    table, too_long = task_figures.drop_too_long(pa.concat_tables(answered), task, lm)
    assert too_long == {"virology": sum(item.subject == "virology" for item in task.items)}
    assert set(table["subject"].to_pylist()) == {"formal_logic"}
    assert table["prediction"].null_count == 0
    figures = task_figures.summarise(table, 0, 10)
    assert figures["closed_book"]["questions"] == figures["replug"]["questions"] == len(table) / 2
    # an open question is left out alone
    task = open_task("0", "virology 1", "2", shown=["shown"])
    table, too_long = task_figures.drop_too_long(
        evaluate(task, "replug", lm, long_documents), task, lm
    )
    assert (table["question_id"].to_pylist(), too_long) == (["0", "2"], {"": 1})
    answered = [
        evaluate(task, "closed_book", lm, None, "o"),
        evaluate(task, "dense", lm, long_documents, "o"),
    ]
    table, too_long = task_figures.drop_too_long(pa.concat_tables(answered), task, lm)
    assert (table["question_id"].to_pylist(), too_long) == (["0", "virology 1", "2", "0", "2"], {})
    figures = task_figures.summarise(table, 0, 10)
    assert [figures[name]["questions"] for name in ("closed_book", "dense")] == [3, 2]
    # no prompt fits
    small = FakeLM()
    small.max_tokens, task = 10, read(raw, "mmlu")
    table, too_long = task_figures.drop_too_long(
        evaluate(task, "closed_book", small, None, "small"), task, small
    )
    assert (len(table), sum(too_long.values())) == (0, len(task.items))
    printed = capsys.readouterr().out
    for part in ("fake", "mmlu", "tasks.mmlu_shots 2", "the 10 tokens that it reads at once"):
        assert part in printed
    assert task_figures.summarise(table, 0, 10) == {}


def test_all_documents_stand_in_one_prompt():
    """A demonstration has its best one alone."""
    asked = []

    class Reading(FakeLM):
        def generate(self, prompts, max_tokens, stop="\n"):
            asked.extend(prompts)
            return [Generation(" So the answer is Number", -0.1, 1)] * len(prompts)

    (row,) = evaluate(
        open_task("who is 1", shown=["who was 0"]), "dense", Reading(), search
    ).to_pylist()
    before = "Knowledge: one A\nwho was 0: the one\n\n"
    assert [prompt.context for prompt in asked] == [
        f"{before}Knowledge: one B\ntwo B\nthree A\nwho is 1:"
    ]
    assert row["correct"], "what follows `answer is` counts, as published"


def test_metrics_by_hand():
    def rows(name, method, right, category=None):
        same = {
            "task": name,
            "method": method,
            "subject": None,
            "category": category,
            "prediction": "",
            "answers": [],
        }
        return [same | {"question_id": f"{i}", "correct": bool(one)} for i, one in enumerate(right)]

    def summary(made):
        made += [row | {"method": "replug_lsr"} for row in made if row["method"] == "replug"]
        return task_figures.summarise(pa.Table.from_pylist(made, evaluate_tasks.SCHEMA), 0, 100)

    nq = summary(rows("nq", "closed_book", [0, 0, 1, 1]) + rows("nq", "replug", [0, 1, 1, 1]))
    made = rows("mmlu", "closed_book", [1, 0], "STEM") + rows(
        "mmlu", "closed_book", [1, 1, 1, 1, 1, 0], "other"
    )
    made += rows("mmlu", "replug", [1, 1], "STEM") + rows(
        "mmlu", "replug", [1, 1, 1, 1, 0, 0], "other"
    )
    mmlu = summary(made)
    assert nq["replug"]["accuracy"]["value"] == 0.75
    assert nq["replug"]["gain"]["value"] == 0.25
    assert mmlu["closed_book"]["accuracy"]["value"] == 0.75
    found = {
        c: (of["value"], of["gain"]["value"]) for c, of in mmlu["replug"]["categories"].items()
    }
    assert found == {"STEM": (1.0, 0.5), "other": pytest.approx((4 / 6, -1 / 6))}
    assert mmlu["replug"]["categories"]["STEM"]["questions"] == 2


@pytest.fixture
def datastore(root):
    """Twelve documents, one of virology and one of logic, with a BM25 index; and the sample's
    params."""
    texts = [f"{subject} is about C" for subject in ("virology", "logic")] + [
        f"word{i} and A" for i in range(10)
    ]
    docs = {
        "id": [f"d{i:02}" for i in range(12)],
        "title": [""] * 12,
        "text": texts,
        "source_document": [""] * 12,
    }
    path = Path("data/corpus/wikipedia/docs.parquet")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(docs), path)
    shutil.copy(root / "params.yaml", "params.yaml")
    chosen = params_file.load_params()
    bm25_build.build(path, Path("data/index/bm25/wikipedia"), chosen.index, chosen.compute, "bm25")
    return chosen


@pytest.fixture
def run_stage(raw, datastore, monkeypatch):
    """Run the stage for a task and a language model named `fake`; the dense indexes' documents end
    in a letter.

    TriviaQA has no data here. Returns the rows of the predictions and the figures.
    """
    raw.rename("data/raw")
    tiny_models.tokenizer().save_pretrained("data/models/tokenizer")
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["tasks"]["concatenated"] = True
    values["lm"]["fake"], values["lms"] = values["lm"]["tiny"], ["tiny", "fake"]
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))  # tiny stays the first

    def saying(letter):
        def find(texts):
            of_question = [
                [f"{i} {letter}" for i in range(3)],
                *[[""] * 3] * 2,
                [0.5] * 3,
                *[0] * 2,
            ]
            return pa.table(
                [[column] * len(texts) for column in of_question], schema=passages.SCHEMA
            )

        return passages.Source(find, 9, written=False)

    sources = {"replug": saying("B"), "replug_lsr": saying("D")}
    monkeypatch.setattr(passages, "open_source", lambda method, *_: sources.get(method))

    def run(task, lm):
        opened = []
        monkeypatch.setattr(
            open_lm,
            "lm_at_work",
            lambda folder, *_, **__: opened.append(folder.name) or nullcontext(lm),
        )
        monkeypatch.setattr("sys.argv", ["evaluate_tasks", task, "fake"])
        evaluate_tasks.main()
        assert opened == ["fake"]
        assert not list(Path(".longtail/work").glob("*"))
        rows = pq.read_table(
            f"data/tasks/{task}/fake/predictions.parquet", schema=evaluate_tasks.SCHEMA
        ).to_pylist()
        return rows, json.loads(Path(f"data/metrics/tasks_{task}_fake.json").read_text())

    return run


def test_questions_of_the_training_set_have_figures_apart(run_stage):
    """Training has five questions in another spelling, to which B is right. A question of two files
    counts once.
    """
    in_training = [f'{{"question": "Who... IS the {i}?", "answer": "x"}}\n' for i in range(5)]
    with Path("data/raw/nq/train/train.jsonl").open("a") as out:
        out.write("".join(in_training))
    questions = [{"question": f"Who is {i}?", "answer": "B" if i < 5 else "C"} for i in range(20)]
    lines = [json.dumps(question) + "\n" for question in questions]
    Path("data/raw/nq/test.jsonl").write_text("".join(lines))

    rows, figures = run_stage("nq", FakeLM())
    assert figures["in_training"] == pytest.approx(intervals.share([1] * 5 + [0] * 15).as_json())
    shown = {}
    for category, figure in figures["replug"]["categories"].items():
        shown[category] = (figure["questions"], figure["value"])
    assert shown == {"in training set": (5, 1.0), "not in training set": (15, 0.0)}
    assert figures["replug"]["accuracy"]["value"] == 0.25

    shutil.copy("data/raw/nq/test.jsonl", "data/raw/nq/dev.jsonl")
    rows_of_both, figures_of_both = run_stage("nq", FakeLM())
    assert figures_of_both.pop("skipped") == {"repeated_record": 20}
    assert len(rows_of_both) == len(rows)
    assert figures_of_both == figures


def test_the_stage_leaves_a_benchmarks_answers_and_figures(run_stage, capsys):
    for task, n_methods, lm, by in (
        ("mmlu", 4, FakeLM, "mixture"),
        ("nq", 4, FakeLM, "mixture"),
        ("triviaqa", 0, FakeLM, ""),
        ("mmlu", 4, Voting, "mixture"),  # it shows the letters
        ("mmlu", 4, Closed, "vote"),
        ("nq", 4, Voting, "vote"),
        ("nq", 2, Closed, None),
    ):
        capsys.readouterr()
        rows, figures = run_stage(task, lm())
        keys, said = [(row["method"], row["question_id"]) for row in rows], {}
        assert keys == sorted(keys)
        assert (figures.pop("rejects"), figures.pop("too_long")) == ({}, {})
        assert ("in_training" in figures) == (task == "nq")
        figures.pop("in_training", None)
        assert list(figures) == sorted(task_figures.METHODS)[:n_methods]
        for method, figure in figures.items():
            said[method] = {row["prediction"] for row in rows if row["method"] == method}
            assert figure["questions"] == sum(row["method"] == method for row in rows) > 0
            categories = {"mmlu": {"humanities", "other"}, "nq": {"not in training set"}}
            assert set(figure["categories"]) == categories[task]
            assert figure["answered_by"] == (None if method in ("closed_book", "dense") else by)
        if n_methods == 4:  # each has its own documents
            assert (said["replug"], said["replug_lsr"]) == ({"B"}, {"D"})
    vote = REPLUG.model_copy(update={"vote": True})
    assert evaluate_tasks.answered_by(open_task("who"), FakeLM(), vote) == "vote"
    refused = "fake shows no log-probabilities of its answers to nq, so no ensemble answers"
    assert capsys.readouterr().out.startswith(refused)
