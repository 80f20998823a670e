"""The run's main result, with which the report begins: a sentence, a few numbers and a figure, all of other tables."""

from pipelines.report.accuracy_sections import enough_known
from pipelines.report.adaptive_section import best_policy
from pipelines.report.entries import Row, known
from pipelines.report.inputs import Inputs
from pipelines.report.lm_sections import bits_by_k, saved_by_documents, solved_tasks
from pipelines.report.page import label

SHOWN = {"never": "never retrieving", "always": "always retrieving", "adaptive": "adaptive retrieval"}


def main_shares(inputs: Inputs) -> list[Row]:
    """Accuracy without retrieved text, always with it, and with it below popularity thresholds.

    They are those of the method with the highest adaptive accuracy. Where no thresholds were fitted, they are those of
    the first method and of the best other one, on the first question set or else on the first benchmark.
    """
    if best := best_policy(inputs):
        never, *others = (
            best | {"policy": words, "accuracy": best[name], "of": best["dataset"]} for name, words in SHOWN.items()
        )
        return [never | {"method": "closed_book"}, *others]
    rows = [
        row | {"accuracy": row["substring"], "of": row["dataset"]}
        for dataset in inputs.asked[:1]
        for row in inputs.rows("accuracy", dataset=dataset)
    ] or _first_benchmark(inputs)
    rows = [row | {"policy": label(row["method"])} for row in rows if known(row["accuracy"])]
    return [*rows[:1], *sorted(rows[1:], key=lambda row: -row["accuracy"].value)[:1]]


def _first_benchmark(inputs: Inputs) -> list[Row]:
    rows = [row | {"of": row["task"]} for row in solved_tasks(inputs) if row["category"] == "all"]
    return [row for row in rows if (row["of"], row["lm"]) == (rows[0]["of"], rows[0]["lm"])]


def main_curve(inputs: Inputs) -> list[Row]:
    """Accuracy by popularity of the methods of `main_shares`."""
    of = {(row["of"], row["lm"], row["method"]) for row in main_shares(inputs)}
    rows = [row for dataset in inputs.asked for row in inputs.answered("accuracy_by_popularity", dataset=dataset)]
    return [row for row in rows if (row["dataset"], row["lm"], row["method"]) in of and enough_known(inputs, row)]


def main_bits(inputs: Inputs) -> list[Row]:
    """Of a run without answers, bits per byte without documents, with the best retriever's and with random ones."""
    if main_shares(inputs) or not (saved := saved_by_documents(inputs)):
        return []
    none = next(row for row in bits_by_k(inputs) if row["retriever"] == "none")
    rows = [none, *(saved[name] for name in ("best", "random") if saved[name])]
    return [row | {"policy": label(row["retriever"])} for row in rows]


def main_bits_by_k(inputs: Inputs) -> list[Row]:
    """Bits per byte by the number of documents, of the retrievers of `main_bits`."""
    names = {row["retriever"] for row in main_bits(inputs)}
    return [row for row in bits_by_k(inputs) if row["retriever"] in names]
