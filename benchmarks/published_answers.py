"""CSV tables of what larger models' published answers tell, with 95 % intervals.

    .venv/bin/python -m benchmarks.published_answers --files FILES

Three public repositories have the answers. Their files are fetched by commit to FILES, where they
stay; 9 MB in all. Accuracies are in per cent and changes in points.

On PopQA an answer is right where its authors say so. Elsewhere it is right if SQuAD's normal form
of a gold answer stands in that of the answer, as the authors count too.
"""

import argparse
import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.project_copy import ROOT, write_csv
from benchmarks.real_tables import RESAMPLES, Table
from pipelines import intervals
from pipelines.adaptive import tuning
from pipelines.adaptive.rule import ALWAYS, NEVER, POLICY_NAMES
from pipelines.evaluation.accuracy import Group, by_groups
from pipelines.evaluation.answer_sets import Answers, MethodAnswers
from pipelines.intervals import Interval, interval
from pipelines.pages.values import show
from pipelines.questions import matching
from pipelines.sources.download import download_alone
from pipelines.storage.atomic import atomic

BASE = "https://raw.githubusercontent.com"
POPQA = "AlexTMallen/adaptive-retrieval/2b70c1ea7db206be429e90b6dbaf850f4514c5ec/data/popQA.tsv"
KNOWING = "solarkyle/jspace/217ff6f8458327a17b7dbba049a10aa90820fa6d/data/uncertainty_popqa_"
ADARAGUE = "s-nlp/AdaRAGUE/31c3428c37b294fb7b55292fcef10601047b8001"
PREDICTIONS = f"{ADARAGUE}/Adaptive_Rag/predictions"

MODELS = (  # those of KNOWING with 12 billion parameters or more, none of them altered
    "gemma-4-12b-it",
    "gemma-4-26b-a4b-it",
    "gemma-4-31b-it",
    "mistral-small-24b-instruct-2501",
    "qwen3.6-27b",
)
DECADES = 10.0 ** np.arange(1, 7)  # bounds between bins of monthly page views

SETS = ("nq", "trivia", "squad", "hotpotqa", "2wikimultihopqa", "musique")
MULTI_HOP = SETS[3:]
ONCE = "once"
SEVERAL = "several times"
WAYS = {  # how often Llama retrieves -> the folder of its predictions
    NEVER: "nor_qa_llama_8b_it_{}____prompt_set_1",
    ONCE: "oner_qa_llama_8b_it_{}____prompt_set_1___bm25_retrieval_count__15___distractor_count__1",
    SEVERAL: (
        "ircot_qa_llama_8b_it_{}____prompt_set_1___bm25_retrieval_count__6___distractor_count__1"
    ),
}
SIDES = {"dev": "dev_500/{}/{{}}__{}_to_{}__dev_500", "test": "test/{}/{{}}__{}_to_{}__test"}
DOUBTS = ("eigen_score", "ln_entropy", "perplexity")  # large where the model is unsure
DOUBT_FILES = {"nq": "nq", "trivia": "tq", "squad": "sq"}
EPOCHS = (15, 25)  # of Adaptive-RAG's classifier
CLASSIFIER = f"{PREDICTIONS}/classifier/t5-large/llama_8b_it/epoch/{{}}/2024_11_28/14_25_04/{{}}"
SEAKR_FILES = {"hotpotqa": "hotpot", "2wikimultihopqa": "2wiki", "musique": "music"}
HALF = tuning.DEFAULTS.model_copy(update={"train_share": 0.5, "search": "shrunk"})


@dataclass(frozen=True)
class Files:
    """Files of public repositories, fetched from below `base` to `folder` when they are read."""

    base: str
    folder: Path

    def text(self, path: str) -> str:
        """A file by owner, repository, commit and path."""
        file = self.folder / path
        if not file.exists():
            with atomic(file) as target:
                download_alone(f"{self.base}/{path}", target.parent)
        return file.read_text(encoding="utf-8")

    def json(self, path: str) -> dict:
        return json.loads(self.text(path))

    def lines(self, path: str) -> list[dict]:
        return [json.loads(line) for line in self.text(path).splitlines()]


@dataclass(frozen=True)
class System:
    """What a system that decides when to retrieve does with each question, (questions,) each."""

    name: str
    right: np.ndarray  # bool
    retrieved: np.ndarray  # bool
    published: str  # its accuracy as its authors' file has it, in per cent


@dataclass(frozen=True)
class QuestionSet:
    """Llama's answers to the test questions of a set; arrays are (questions,)."""

    name: str
    ids: np.ndarray  # str
    right: Mapping[str, np.ndarray]  # way -> bool
    best_on_dev: str  # the way that is most often right on the other questions
    signals: Mapping[str, np.ndarray]  # how sure the model is, or a classifier of it
    systems: list[System]


def tables(files: Files) -> list[Table]:
    """What the published answers tell, in the order of docs/results.md."""
    sets = [read_set(name, files) for name in SETS]
    return [by_popularity(files), thresholds(sets), systems(sets)]


def by_popularity(files: Files) -> Table:
    """Accuracy on PopQA without retrieval, by decade of popularity, and its correlation with log
    popularity.
    """
    answers = read_popqa(files)
    groups = [Group({"views": "all"}, answers.everyone)]
    decades = np.digitize(answers.popularity, DECADES)
    for decade in range(1, decades.max() + 1):
        least, most = DECADES[decade - 1 : decade + 1]
        groups.append(Group({"views": f"{least:,.0f} to {most - 1:,.0f}"}, decades == decade))

    rows = []
    for row in by_groups(answers, groups, ["correlation"]):
        correlation = ""
        if row["views"] == "all":
            correlation = show(row["correlation"], signed=True, digits=2)
        accuracy = percent(row["substring"])
        rows.append([row["method"], row["views"], str(row["questions"]), accuracy, correlation])
    return Table("popularity", ["model", "views", "questions", "accuracy", "correlation"], rows)


def read_popqa(files: Files) -> Answers:
    """The models' answers to the same questions of PopQA, with subjects by text and popularity."""
    subjects = {}
    for row in csv.DictReader(files.text(POPQA).splitlines(), delimiter="\t"):
        subjects[row["question"], int(row["s_pop"])] = row["s_uri"]

    by_method = {}
    for model in MODELS:
        lines = files.lines(f"{KNOWING}{model}.jsonl")
        questions = [(line["q"], line["pop"]) for line in lines]
        unknown = np.full(len(lines), np.nan)
        columns = {field.name: unknown for field in fields(MethodAnswers)}
        columns["correct"] = np.array([line["correct"] for line in lines], dtype=float)
        by_method[model] = MethodAnswers(**columns)

    n = len(questions)
    return Answers(
        ids=np.arange(n),
        relations=np.full(n, ""),
        subjects=np.array([subjects[question] for question in questions]),
        popularity=np.array([views for _, views in questions], dtype=float),
        ambiguous=np.zeros(n, bool),
        by_method=by_method,
        seed=0,
        resamples=RESAMPLES,
    )


def read_set(name: str, files: Files) -> QuestionSet:
    """A set's answers by each way and each system, judged alike."""
    _, right_on_dev = _read_side(name, "dev", files)
    golds, right = _read_side(name, "test", files)
    signals = {}
    if name in DOUBT_FILES:
        path = f"{ADARAGUE}/SeaKR/results/outputs_{DOUBT_FILES[name]}_ours_3_1/direct.jsonl"
        lines = files.lines(path)
        assert len(lines) == len(golds), path  # they have the order of the set, and no ids
        for doubt in DOUBTS:
            # a threshold cuts what grows with what the model knows, and is not negative
            signals[doubt] = np.exp([-line[doubt] for line in lines])

    last = EPOCHS[-1]
    path = f"{CLASSIFIER.format(last, name)}/{name}_option_with_probas.json"
    options = files.json(path)
    chances = [options[id_]["probas"].split(",")[0] for id_ in golds]
    signals["classifier"] = np.array(chances, dtype=float)  # that no retrieval is needed
    return QuestionSet(
        name=name,
        ids=np.array(list(golds)),
        right=right,
        best_on_dev=max(right_on_dev, key=lambda way: right_on_dev[way].mean()),
        signals=signals,
        systems=_read_systems(name, golds, files),
    )


def _read_side(
    name: str, side: str, files: Files
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """The gold answers by id, and way -> which are right in their order."""
    right = {}
    for way, folder in WAYS.items():
        path = SIDES[side].format(folder.format(name), name, name)
        path = f"{PREDICTIONS}/{path}_subsampled.json"
        if way == NEVER:
            golds = files.json(path.format("ground_truth"))
        right[way] = _judge(files.json(path.format("prediction")), golds)
    return golds, right


def _judge(predictions: Mapping[str, str], golds: Mapping[str, list[str]]) -> np.ndarray:
    """Which predictions are right, in the order of `golds`, (questions,) bool."""
    right = []
    for id_, answers in golds.items():
        normal_answers = [matching.normalise(answer) for answer in answers]
        right.append(matching.substring(matching.normalise(predictions[id_]), normal_answers))
    return np.array(right)


def _read_systems(name: str, golds: Mapping[str, list[str]], files: Files) -> list[System]:
    """Adaptive-RAG and, where its answers have ids, SeaKR."""
    found = []
    for epochs in EPOCHS:
        folder = CLASSIFIER.format(epochs, name)
        options = files.json(f"{folder}/{name}_option.json")
        predictions = {id_: option["prediction"] for id_, option in options.items()}
        retrieved = np.array([options[id_]["stepNum"] > 0 for id_ in golds])
        published = files.json(f"{folder}/eval_metic_result_acc.json")["acc"]
        title = f"Adaptive-RAG, {epochs} epochs"
        right = _judge(predictions, golds)
        found.append(System(title, right, retrieved, f"{100 * published:.1f}"))

    if name in SEAKR_FILES:
        lines = files.lines(f"{ADARAGUE}/SeaKR/results/{SEAKR_FILES[name]}_3_1/results.jsonl")
        by_id = {line["qid"]: line for line in lines}
        predictions = {id_: line["Final Answer"] for id_, line in by_id.items()}
        retrieved = np.array([by_id[id_]["Retrieval Times"] > 0 for id_ in golds])
        found.append(System("SeaKR", _judge(predictions, golds), retrieved, ""))
    return found


def thresholds(sets: list[QuestionSet]) -> Table:
    """Thresholds on each signal, tuned on one half of the questions and judged on the other."""
    rows = []
    for of_set in sets:
        for way in (ONCE, SEVERAL) if of_set.name in MULTI_HOP else (ONCE,):
            change = intervals.gain(1.0 * of_set.right[way] - of_set.right[NEVER], of_set.ids)
            for name in of_set.signals:
                figures = tune_set(of_set, way, name)
                accuracies = [percent(interval(figures[name])) for name in (NEVER, ALWAYS)]
                adaptive = percent(interval(figures["adaptive"]))
                gain = _points(interval(figures["gain"]))
                retrieved = percent(interval(figures["retrieved"]))
                advised = POLICY_NAMES[figures["policy"]]
                row = [of_set.name, way, *accuracies, _points(change)]
                rows.append([*row, name, adaptive, gain, retrieved, advised])

    head = ["set", "retrieving", NEVER, ALWAYS, "always less never", "signal", "threshold"]
    head += ["less the better of never and always", "retrieves", "advised"]
    return Table("thresholds", head, rows)


def tune_set(of_set: QuestionSet, way: str, signal: str, budget: float = 1) -> dict:
    """What a threshold on a signal is worth, as a dictionary of `Tuned.figures`."""
    values = of_set.signals[signal]
    tuned = tuning.tune_arrays(
        values,
        np.full(len(values), ""),
        of_set.ids,
        of_set.right[NEVER],
        of_set.right[way],
        settings=HALF.model_copy(update={"budget": budget}),
        resamples=RESAMPLES,
        searches=(HALF.search,),
        ids=of_set.ids,
    )
    return tuned.figures[HALF.search]


def systems(sets: list[QuestionSet]) -> Table:
    """Systems beside retrieving once, and beside the way that is best on the dev questions."""
    rows = []
    for of_set in sets:
        best = of_set.right[of_set.best_on_dev]
        for system in of_set.systems:
            over_once = intervals.gain(1.0 * system.right - of_set.right[ONCE], of_set.ids)
            over_best = intervals.gain(1.0 * system.right - best, of_set.ids)
            rows.append(
                [
                    *(of_set.name, system.name, system.published),
                    percent(intervals.share(system.right)),
                    percent(intervals.share(system.retrieved)),
                    _points(over_once),
                    of_set.best_on_dev,
                    percent(intervals.share(best)),
                    _points(over_best),
                ]
            )
    head = ["set", "system", "published accuracy", "accuracy", "retrieves", "less retrieving once"]
    head += ["best way on dev", "its accuracy", "less the best way on dev"]
    return Table("systems", head, rows)


def percent(figure: Interval) -> str:
    return show(figure.times(100), digits=1)


def _points(figure: Interval) -> str:
    return show(figure.times(100), signed=True, digits=1)


def arguments(description: str | None) -> argparse.Namespace:
    """Where the published files are, and where tables of them go."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=Path, required=True, help="folder that keeps the files")
    parser.add_argument("--base", default=BASE, help="address that the files are fetched from")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/measured/tables")
    return parser.parse_args()


def main() -> None:
    args = arguments(__doc__)
    for table in tables(Files(args.base, args.files)):
        file = args.out / f"published-answers-{table.title}.csv"
        write_csv(file, table.head, table.rows)
        print(file)


if __name__ == "__main__":
    main()
