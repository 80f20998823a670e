"""Systems that decide when to retrieve, judged beside thresholds on the same held-out questions.

They are judged by accuracy, calls and budgets. A budget is a share of the questions that may
retrieve. A signal, such as a model's doubt, spends it on the questions where it is strongest;
thresholds spend it as if all of them were shifted by the same factor. Accuracy by the budget is a
curve, and the area under it is the mean accuracy over all budgets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines import draws, intervals
from pipelines.adaptive import budgets, refits
from pipelines.adaptive.refits import Column
from pipelines.adaptive.tuning import Tuned
from pipelines.errors import LongtailError
from pipelines.foreign.judge_files import NO_ANSWER, RESAMPLES, SEED, Answered

ALWAYS_OR_NEVER = {1.0: "; always retrieving", 0.0: "; without retrieval"}


@dataclass(frozen=True)
class Choices:
    """What a policy or a system does with each question, (questions,) each."""

    right: np.ndarray  # bool
    calls: np.ndarray  # how often it retrieves


def with_answers(answered: Sequence[Answered]) -> list[Answered]:
    """The same files, those of decisions alone with the answers that they pick of the first two.

    A question of which a later file does not say whether it retrieved has no answer of it. Raises
    LongtailError if the first file retrieved for a question, or the second did not.
    """
    closed, augmented, *others = answered
    _check_retrieved(closed, "first", expected=False)
    _check_retrieved(augmented, "second", expected=True)
    completed = [closed, augmented]
    for file in others:
        has_answer = file.has
        correct = file.correct
        if file.calls is not None:
            has_answer = has_answer & np.isfinite(file.calls)
            if not file.says:
                correct = np.where(file.calls > 0, augmented.correct, closed.correct)
        completed.append(replace(file, correct=np.where(has_answer, correct, NO_ANSWER)))

    return completed


def _check_retrieved(file: Answered, place: str, expected: bool) -> None:
    """Raise LongtailError where a file says that it retrieved and should not have, or did not."""
    if file.calls is None:
        return
    retrieved = file.calls[np.isfinite(file.calls)] > 0
    if (retrieved != expected).any():
        does = "always" if expected else "never"
        count = f"{int(retrieved.sum()):,} of {len(retrieved):,} questions"
        raise LongtailError(
            f"{file.name}: retrieved for {count}, expected a {place} file that {does} does; give "
            "files that decide last"
        )


def judge_deciders(
    tuned: Tuned,
    search: str,
    places: np.ndarray,
    closed: Answered,
    deciders: Sequence[Answered],
) -> list[dict]:
    """The deciders and the policies on the questions that the splits hold out, policies first.

    A row has system, said, accuracy, difference, retrieved, calls, accuracy_area and less, with
    Intervals, but for what is not known. `difference` and `less` are the accuracy and the area less
    those of the thresholds. `places` (questions,) are where the files have the questions of
    `tuned.pairs`.
    """
    pairs = tuned.pairs
    once = np.ones(len(pairs.gains))
    either_right = pairs.right_above | pairs.right_below
    choices = {  # of the policies that need no thresholds
        "always": Choices(pairs.right_below, once),
        "never": Choices(pairs.right_above, 0 * once),
        "oracle": Choices(either_right, pairs.gains > 0),
    }
    files = {}
    for decider in deciders:
        name = decider.name
        if name in ("adaptive", "at random", *choices):
            name = f"file {name}"
        files[name] = decider

    for name, file in files.items():
        if file.calls is not None:
            choices[name] = Choices(file.correct[places] == 1, file.calls[places])

    rows = _rows(tuned, search, choices, files)
    signals = {"oracle": pairs.gains}
    for name, file in ({closed.name: closed} | files).items():
        if file.uncertainty is not None:
            signals[f"doubt of {name}"] = file.uncertainty[places]
            rows.append({"system": f"doubt of {name}", "said": "a signal: no decisions"})

    _add_areas(rows, tuned, signals)
    held = _held_out(tuned)
    never = pairs.right_above[held].mean()
    always = pairs.right_below[held].mean()
    chance = float(never + always) / 2
    at_random = intervals.Interval(chance, chance, chance)
    rows.append({"system": "at random", "accuracy_area": at_random})
    return rows


def _held_out(tuned: Tuned) -> np.ndarray:
    """Which questions some split holds out, (questions,) bool."""
    return np.isfinite(tuned.fitted.policy.retrieved)


def _rows(
    tuned: Tuned,
    search: str,
    choices: Mapping[str, Choices],
    files: Mapping[str, Answered],
) -> list[dict]:
    """Accuracy, its difference to the thresholds', and retrievals of each policy and system."""
    pairs = tuned.pairs
    held = _held_out(tuned)
    subjects = pairs.subjects[held]
    columns = {}
    asked = []
    each = held[held]  # counts every question that is held out once
    for name, choice in choices.items():
        difference = choice.right - 1.0 * pairs.right_above
        columns[name] = Column(difference, {"": -pairs.gains}, apart=True)
        calls = choice.calls[held]
        asked.append(((name, "retrieved"), intervals.ratio, [calls > 0, each]))
        asked.append(((name, "calls"), intervals.ratio, [calls, each]))

    differences = refits.refitted_means(columns, {"": tuned.fitted.policy}, tuned.drawn)
    means = intervals.of_clusters(asked, subjects, draws.generator(SEED, "calls"), RESAMPLES)

    figures = tuned.figures[search]
    retrieved = intervals.interval(figures["retrieved"])
    rows = [
        {
            "system": "adaptive",
            "accuracy": intervals.interval(figures["adaptive"]),
            "retrieved": retrieved,
            "calls": retrieved,
        }
    ]
    for name, choice in choices.items():
        retrieved = means[name, "retrieved"]
        row = {
            "system": name,
            "accuracy": intervals.share(choice.right[held], subjects),
            "difference": differences[name],
            "retrieved": retrieved,
            "calls": means[name, "calls"],
        }
        if name in files:
            whose = "its own answers" if files[name].says else "answers of the pair"
            row["said"] = whose + ALWAYS_OR_NEVER.get(retrieved.value, "")
        rows.append(row)

    return rows


def _add_areas(rows: list[dict], tuned: Tuned, signals: Mapping[str, np.ndarray]) -> None:
    """Add the areas under the curves of thresholds and signals to the rows."""
    pairs = tuned.pairs
    # how often each question counts: the held-out ones, then each resample
    times = [_held_out(tuned), *tuned.drawn.times.T]
    areas = {"adaptive": areas_of_thresholds(tuned)}
    for name, signal in signals.items():
        drawn = [area(signal, pairs.right_above, pairs.gains, counts) for counts in times]
        areas[name] = np.array(drawn)

    n_clusters = len(np.unique(tuned.drawn.clusters))

    def interval(values: np.ndarray) -> intervals.Interval:
        """Around the first value, by the others, which are of resamples."""
        return refits.around(values[0], values[None, 1:], n_clusters)

    for row in rows:
        name = row["system"]
        if name not in areas:
            continue
        row["accuracy_area"] = interval(areas[name]).within(0, 1)
        difference = areas[name] - areas["adaptive"]
        if difference.any():
            row["less"] = interval(difference)


def area(signal: np.ndarray, right: np.ndarray, gains: np.ndarray, times: np.ndarray) -> float:
    """The area under accuracy by the share of the questions that retrieve.

    Questions retrieve in the order of falling `signal` (n,), those of equal signal together, so
    that the curve is straight there. `right` says which are right without retrieval, `gains` what
    retrieving gains each, `times` how often each counts.
    """
    times = times.astype(float)
    total = times.sum()
    order = np.argsort(-signal, kind="stable")
    ordered = signal[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    asked = np.cumsum(times[order])[is_last]
    gain = np.cumsum((times * gains)[order])[is_last]
    share = np.append(0.0, asked) / total
    gained = np.append(0.0, gain)
    accuracy = (right @ times + gained) / total
    return np.trapezoid(accuracy, share)


def areas_of_thresholds(tuned: Tuned) -> np.ndarray:
    """`area` of the thresholds, (1 + resamples,).

    The first is by the splits' thresholds, where a question is held out, the others by the
    thresholds of each resample.
    """
    pairs = tuned.pairs
    right = pairs.right_above
    gains = pairs.gains

    rows, splits = np.nonzero(~tuned.train)
    weights = 1 / np.bincount(rows)[rows]  # a question counts once over all splits
    signal = budgets.log_ratios(pairs, tuned.fitted.splits)[rows, splits]
    areas = [area(signal, right[rows], gains[rows], weights)]

    signals = budgets.log_ratios(pairs, tuned.fitted.whole)
    for signal, times in zip(signals.T, tuned.drawn.times.T, strict=True):
        areas.append(area(signal, right, gains, times))

    return np.array(areas)
