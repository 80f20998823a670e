"""The benchmark of real models: the params of its runs, what it judges besides the stages, and
its tables.
"""

import csv
import gzip
import itertools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_results
import yaml
from omegaconf import OmegaConf

from benchmarks import real_judged, real_models, real_tables
from pipelines.answering import passages, prompts
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import MODELS, open_lm
from pipelines.params import params_file
from pipelines.questions import matching, published
from pipelines.storage import parquet


@pytest.fixture
def copied(root, tmp_path, monkeypatch):
    """A function that prepares a run; it returns the params of each copy by its name, as
    `longtail run` checks them.
    """
    base = OmegaConf.load(root / "conf/config.yaml")
    base.pop("defaults")
    made = {}

    def copy(target, cache, changes):
        target.mkdir(parents=True)
        values = OmegaConf.to_container(OmegaConf.merge(base, changes), resolve=True)
        made[target.name] = params_file.parse(values)

    def prepare(what, *changes, seeds=(0, 1)):
        made.clear()
        folders = real_models.prepare(
            what, tmp_path / "files", tmp_path / "models", tmp_path / "work", seeds, changes
        )
        return folders, dict(made)

    (tmp_path / "files/qa").mkdir(parents=True)
    lines = [f"{i}\n" for i in range(10)]
    (tmp_path / "files" / real_models.SPLIT["nq"]).write_text("".join(lines))
    monkeypatch.setattr(real_models, "_copy", copy)
    return prepare


@pytest.mark.parametrize("what", real_models.RUNS)
def test_the_params_of_every_run_are_allowed(copied, tmp_path, what):
    """Changes come last."""
    folders, params = copied(what, "answer.max_questions=7", "lsr.learning_rate=0.5")
    assert [folder.name for folder in folders] == list(params)
    for of_copy in params.values():
        assert of_copy.profile == "real_models"
        assert (of_copy.answer.max_questions, of_copy.lsr.learning_rate) == (7, 0.5)
        assert of_copy.fetch.root == str(tmp_path / "work/files")
        assert all(of_copy.lm[lm].path.startswith(str(tmp_path / "models")) for lm in of_copy.lms)
    assert copied(what)[1] == {}, "copies that are there stay"


def test_each_teacher_is_asked_both_ways_on_every_seed(copied):
    _, params = copied("teachers", seeds=(3, 5))
    found = {(p.lsr.lm, p.lsr.n_shots, p.seed) for p in params.values()}
    assert found == {*itertools.product(real_models.TEACHERS, real_models.SHOTS, (3, 5))}
    assert {p.lsr.keep for p in params.values()} == {"last"}, "a bad teacher's harm is to be seen"
    assert all(p.lms == [p.lsr.lm] for p in params.values())


def test_rewards_differ_in_nothing_but_who_teaches(copied):
    """The control has no teacher, so that one copy of it is enough for a seed."""
    _, params = copied("rewards", seeds=(3, 5))
    found = [(p.lsr.likelihood, p.lsr.lm, p.seed) for p in params.values()]
    asked = [*itertools.product(real_models.LM_REWARDS, real_models.TEACHERS, (3, 5))]
    asked += [(real_models.CONTROL, real_models.TEACHERS[0], seed) for seed in (3, 5)]
    assert sorted(found) == sorted(asked)
    same = {"likelihood": "prob", "lm": "smollm2-135m", "n_shots": 2}
    others = {p.lsr.model_copy(update=same).model_dump_json() for p in params.values()}
    assert len(others) == 1


def test_each_relation_is_left_out_by_one_seed(copied, tmp_path, monkeypatch):
    rows = ["a\tm", "b\tm", "a\tn", "c\tm", "d\tm", "b\tm", "a\tn"]
    file = tmp_path / "files" / real_models.QUESTIONS
    file.parent.mkdir()
    file.write_text("\n".join(["prop\ts_wiki_title", *rows, "a\tof later passages"]) + "\n")
    monkeypatch.setattr(real_models, "FEW", 2)
    passages = "id\ttext\ttitle\n1\tx\tn\n2\ty\tm\n3\tz\tof later passages\n"
    (tmp_path / "files" / real_models.PASSAGES).write_bytes(gzip.compress(passages.encode()))
    _, params = copied("rewards", seeds=(0, 1, 2))
    few = (tmp_path / "work/files" / real_models.FEW_PASSAGES).read_text()
    assert few.splitlines() == passages.splitlines()[:3]
    kept = set()
    for of_copy in params.values():
        (name,) = of_copy.fetch.files["popqa"]
        kept.add((tmp_path / "work/files" / name).read_text())
    assert sorted(kept) == sorted(
        "".join(f"{row}\n" for row in ["prop\ts_wiki_title", *rows] if row[0] not in left_out)
        for left_out in ("ad", "b", "c")
    )


def test_every_fifth_question_is_a_demonstration_and_never_asked(copied, tmp_path):
    copied("sizes")
    of_split = [
        (tmp_path / f"work/files/split/nq_{part}.jsonl").read_text().split()
        for part in ("train", "test")
    ]
    assert of_split == [["0", "5"], ["1", "2", "3", "4", "6", "7", "8", "9"]]


def test_a_copy_has_the_shared_cache(tmp_path, monkeypatch):
    """Half a copy is made anew."""

    def clone(folder, profile):
        (folder / ".dvc").mkdir(parents=True)
        (folder / "conf/profile").mkdir(parents=True)

    def init(command, cwd, **how):
        if fails:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(real_models, "clone", clone)
    monkeypatch.setattr(subprocess, "run", init)
    work, fails = tmp_path, True
    for fails in (True, False):
        if fails:
            with pytest.raises(subprocess.CalledProcessError):
                real_models._copy(
                    work / "sizes/whole", work / "cache", OmegaConf.create({"seed": 3})
                )
            assert not (work / "sizes/whole").exists()
        else:
            real_models._copy(work / "sizes/whole", work / "cache", OmegaConf.create({"seed": 3}))
    copy = work / "sizes/whole"
    assert (copy / ".dvc/cache").resolve() == work / "cache"
    assert (copy / "conf/profile/real_models.yaml").read_text() == "# @package _global_\nseed: 3\n"
    assert [path.name for path in copy.parent.iterdir()] == ["whole"]


def test_a_copy_whose_command_fails_ends_there(tmp_path, monkeypatch):
    """The others run all the same."""
    ran = []

    def called(command, cwd, **how):
        ran.append((cwd.name, *command[2:4]))
        return subprocess.CompletedProcess(command, cwd.name == "b")

    monkeypatch.setattr(subprocess, "run", called)
    done = [real_models.run(real_models.STEPS["sizes"], tmp_path / name) for name in "abc"]
    assert done == [True, False, True]
    assert [name for name, *_ in ran] == ["a", "a", "a", "b", "c", "c", "c"]
    assert ran[-1] == ("c", "flows.cli", "run")


LEFT_OUT = {  # a published question of a relation that the project has none of
    "subj": "Norland",
    "prop": "capital",
    "obj": "Velm",
    "s_aliases": [],
    "o_aliases": [],
    "s_uri": "http://www.wikidata.org/entity/Q1",
    "o_uri": "http://www.wikidata.org/entity/Q2",
    **dict.fromkeys(published.NUMBERS, 99),
    "question": "What is the capital of Norland?",
    "possible_answers": ["Velm"],
}


@pytest.fixture
def judged(project):
    """A function that judges the small project, with demonstrations, and returns the file's
    table.
    """
    project.settings["answer"]["n_shots"] = 1
    project.settings["fetch"]["root"] = "files"
    project.settings["lm"]["tiny"]["path"] = str(MODELS / "tiny")
    file = project.folder / "files" / real_models.FEW_QUESTIONS
    file.parent.mkdir(parents=True)
    published.write_tsv([pa.RecordBatch.from_pylist([LEFT_OUT], published.SCHEMA)], file)
    (project.folder / "params.yaml").write_text(yaml.safe_dump(project.settings))
    chosen = params_file.load_params()

    def judge(what):
        how, file = real_judged.JUDGES[what]
        file.parent.mkdir(exist_ok=True)
        how(chosen, file)
        return chosen, parquet.read_parquet(
            file
        ).to_pylist() if file.suffix == ".parquet" else json.loads(file.read_text())

    return judge


def test_recall_is_whether_the_first_documents_hold_an_answer(judged, project):
    chosen, rows = judged("recall")
    questions = parquet.read_parquet("data/questions/popqa/popqa.parquet").to_pylist()
    asked = [LEFT_OUT | {"question_id": "99"}, *questions[16:]]
    assert [row["unseen"] for row in rows] == [True] + [False] * 4
    for row, question in zip(rows, asked, strict=True):
        assert (row["question_id"], row["subject"]) == (question["question_id"], question["s_uri"])
        for retriever in ("dense", "lsr"):
            source = passages.open_source(
                f"{'replug' if retriever == 'dense' else 'replug_lsr'}",
                None,
                chosen,
                real_judged.DATA,
            )
            texts = source.find([question["question"]])["texts"][0].as_py()
            holds = [matching.word(text, question["possible_answers"]) for text in texts]
            assert row[f"{retriever}_at_1"] == holds[0]
            assert row[f"{retriever}_at_10"] >= row[f"{retriever}_at_5"] >= any(holds)
    assert {row["dense_at_1"] for row in rows} | {row["lsr_at_5"] for row in rows} == {True, False}


def test_no_copy_asks_again_what_another_has_asked(judged, project, monkeypatch):
    asked = []
    generate = LocalModel.generate

    def counted(self, prompts, *arguments):
        asked.extend(prompts)
        return generate(self, prompts, *arguments)

    monkeypatch.setattr(LocalModel, "generate", counted)
    monkeypatch.setattr(real_judged, "JUDGES_OF_LSR", ("tiny",))
    monkeypatch.setattr(real_judged, "ANSWERS", Path("answers"))
    _, recall = judged("recall")
    _, rows = judged("accuracy")
    different = sum(row["dense_first"] != row["lsr_first"] for row in recall)
    assert len(rows) == len(recall) == 5
    assert {"dense_right_tiny", "lsr_right_tiny", "subject", "unseen"} < {*rows[0]}
    assert len(asked) == len(recall) + different
    assert judged("accuracy")[1] == rows
    assert len(asked) == len(recall) + different


def test_scores_are_of_the_prompts_that_answers_are_asked_with(judged, project):
    chosen, _ = judged("temperature")
    table = real_judged.read_questions(chosen)
    places = np.arange(16, 20)
    positions, _ = real_judged.search(chosen, "dense", table.take(places), 1)
    log_probs, n_bytes = real_judged.score_answers(chosen, table, places, positions)
    pool = prompts.read_questions(table)
    source = passages.open_source("dense", None, chosen, real_judged.DATA)
    lm = open_lm(MODELS / "tiny", chosen.lm["tiny"], chosen.compute, scoring=True)
    for row, place in enumerate(places):
        (sent,), *_ = passages.prompts_of_question(chosen, "popqa", pool, place, "tiny", source)
        gold = f" {pool.answers[place][0]}"
        scores = lm.score([sent], [gold])
        assert log_probs[row].sum() == pytest.approx(scores.log_probs[0].sum(), rel=1e-5)
        assert n_bytes[row].sum() == len(gold)


def test_replugs_temperature_is_chosen_on_training_alone(judged, project):
    table = pq.read_table("data/questions/popqa/popqa.parquet")
    _, found = judged("temperature")
    best = min(found["temperatures"], key=lambda row: row["bits_per_byte"])["temperature"]
    assert found["questions"] == 16
    assert params_file.load_params().replug.temperature == found["chosen"] == best
    assert len({row["bits_per_byte"] for row in found["temperatures"]}) > 1
    pq.write_table(table.slice(0, 16), "data/questions/popqa/popqa.parquet")
    assert judged("temperature")[1] == found, "no held-out question is read"


# of four questions, with the first document of each retriever
RIGHT = {"dense": [1, 0, 0, 0], "lsr": [1, 1, 1, 0]}


@pytest.fixture
def trained(tmp_path):
    """A function that writes what a copy of the project has after LSR on questions."""

    def write(name, seed, right=RIGHT, likelihood="mean_logprob"):
        copy, subjects = tmp_path / name, ["a", "a", "b", "c"]
        params = {
            "seed": seed,
            "lms": ["tiny"],
            "retrievers": ["dense"],
            "parts": {"answered": ["popqa"]},
        }
        params |= {
            "answer": {"n_shots": 2},
            "lsr": {"lm": "tiny", "n_shots": None, "likelihood": likelihood},
        }
        (copy / "data/metrics").mkdir(parents=True)
        (copy / "params.yaml").write_text(yaml.safe_dump(params))
        auc = {"value": 0.9, "low": 0.8, "high": 1}
        look = {"auc_lm": auc, "auc_retriever": auc, "auc_gain": auc | {"value": 0.0}}
        (copy / "data/metrics/lsr_dense.json").write_text(json.dumps({"look": [look]}))
        asked = {"question_id": [f"{i}" for i in range(4)]}
        recall = {"unseen": [False, True, True, False]}
        for name, k in itertools.product(right, real_judged.DEPTHS):
            recall[f"{name}_at_{k}"] = [value > 0 for value in right[name]]
        (copy / "judged").mkdir()
        columns = asked | {"subject": subjects} | recall
        pq.write_table(pa.table(columns), copy / "judged/recall.parquet")
        (copy / "data/predictions/popqa/tiny").mkdir(parents=True)
        for name, values in right.items():
            answers = pa.table(asked | {"correct": [value > 0 for value in values]}).slice(0, 3)
            pq.write_table(answers, copy / f"data/predictions/popqa/tiny/{name}_dense.parquet")
        return copy

    return write


@pytest.fixture
def written_tables(tmp_path):
    """A function that writes the tables of the runs; it returns the rows of each by its name."""

    def write() -> dict[str, list[dict[str, str]]]:
        lines = list(real_tables.write_tables(tmp_path, tmp_path / "out"))
        files = [line for line in lines if line.endswith(".csv")]
        assert sorted(files) == sorted(map(str, (tmp_path / "out").iterdir()))
        tables = {}
        for file in map(Path, files):
            with file.open(encoding="utf-8", newline="") as table:
                tables[file.stem] = list(csv.DictReader(table))
        return tables

    return write


def test_the_tables_have_what_each_teacher_changes(trained, written_tables):
    trained("teachers/tiny_2_3", 3)
    trained("teachers/tiny_2_5", 5, right={"dense": [1, 0, 1, 0], "lsr": [1, 0, 0, 0]})
    tables = written_tables()
    assert list(tables) == ["teachers-before-training", "teachers-after-training"]
    look = tables["teachers-before-training"][0]
    assert list(look.values())[:5] == ["tiny", "2", "mean_logprob", "3", "0.900 [0.800, 1.000]"]
    rows = {row["seed"]: row for row in tables["teachers-after-training"]}
    assert list(rows) == ["3", "5", "all"]
    recall = [row["change in recall@1"].split()[0] for row in rows.values()]
    assert recall == ["+50.0", "\u221225.0", "+12.5"]
    accuracy = [row["change in accuracy"].split()[0] for row in rows.values()]
    assert accuracy == ["+66.7", "\u221233.3", "+16.7"]


def test_the_tables_compare_each_reward_with_the_control(trained, written_tables, monkeypatch):
    """Of two questions of other relations, right answers help with one, and the control with both."""
    monkeypatch.setattr(real_tables, "JUDGED", real_tables.JUDGED[:3])
    for likelihood, tuned in (("answer_right", [1, 1, 0, 0]), ("holds_answer", [1, 1, 1, 0])):
        for seed in (3, 5):
            right = {"dense": [1, 0, 0, 0], "lsr": tuned}
            copy = trained(f"rewards/tiny_{likelihood}_{seed}", seed, right, likelihood)
            (copy / "judged/accuracy.parquet").touch()
    (name, rows), *others = written_tables().items()
    assert (name, others) == ("rewards-changes", [])
    changes = {
        (row["reward"], row["less"], row["seed"]): [
            row[f"recall@1, {relations}"].split()[0]
            for relations in ("relations in training", "other relations")
        ]
        for row in rows
    }
    assert changes.pop(("none", "", "all")) == ["50.0", "0.0"]
    seeds = ("3", "5", "all")
    assert changes == {
        **{("answer_right", "untuned", seed): ["0.0", "+50.0"] for seed in seeds},
        **{("answer_right", "holds_answer", seed): ["0.0", "\u221250.0"] for seed in seeds},
        **{("holds_answer", "untuned", seed): ["0.0", "+100.0"] for seed in seeds},
    }


@pytest.fixture
def sizes(written, settings, tmp_path):
    """A run of two language models, with small tables."""
    copy = tmp_path / "sizes/whole"
    values = settings | {"lms": ["tiny", "big"], "parts": small_results.PARTS.model_dump()}
    values |= {
        "lm": values["lm"] | {"big": values["lm"]["tiny"]},
        "lsr": values["lsr"] | {"lm": "big"},
    }
    shutil.copytree(written[0], copy / "data")
    (copy / "params.yaml").write_text(yaml.safe_dump(values))
    return copy


def test_tables_have_the_figures_of_each_language_model(sizes, written_tables, tmp_path):
    for passages_of_question in ("1", "2"):
        copy = tmp_path / "mixture" / passages_of_question
        shutil.copytree(sizes, copy)
        params = yaml.safe_load((copy / "params.yaml").read_text())
        params["replug"]["top_k"] = int(passages_of_question)
        (copy / "params.yaml").write_text(yaml.safe_dump(params))
    tables = written_tables()
    assert {row["language model"] for row in tables["sizes-claims"]} == {"tiny"}, (
        "big has no answers"
    )
    of_sizes = ("accuracy", "where-retrieval-helps", "where-passages-hold-an-answer")
    assert {f"sizes-{name}" for name in of_sizes} <= {*tables}
    rows = [list(row.values()) for row in tables["sizes-language-modelling"]]
    without = [row[3] for row in rows if row[0] == "Pile" and row[2] == "0"]
    assert sorted(without) == ["big", "tiny"]
    adaptive = {row["method"]: row for row in tables["sizes-adaptive-retrieval"]}
    assert "[" in adaptive["dense"]["gain"]
    for name in ("mixture-of-1-passages", "mixture-of-2-passages"):
        assert "without retrieval" in {row["answered"] for row in tables[f"{name}-accuracy"]}
        assert "without retrieval" in {row["less"] for row in tables[f"{name}-gain"]}
