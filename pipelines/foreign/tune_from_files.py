"""Thresholds from files of predictions and a question set from anywhere, and others' decisions when to retrieve.

A file that says when its system retrieved is judged beside the thresholds, on the same held-out questions: accuracy,
calls, and budgets. A budget is a share of the questions that may retrieve. A signal, such as a model's doubt, spends it
on the questions where it is strongest; thresholds spend it as if all of them were shifted by the same factor. Accuracy
by the budget is a curve, and the area under it is the mean accuracy over all budgets.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipelines import draws, intervals
from pipelines.adaptive import held_out, refits, rule, tuning
from pipelines.adaptive.refits import Column
from pipelines.adaptive.rule import Rule
from pipelines.adaptive.tuning import Tuned
from pipelines.errors import LongtailError
from pipelines.foreign.judge_files import NO_ANSWER, Answered, in_all
from pipelines.foreign.question_tables import Questions

BUDGETS = np.linspace(
    0, 1, 101
)  # that curves are known at, of which each tenth is drawn; areas are exact
LEAST, MOST = (
    1e-30,
    1e99,
)  # thresholds and signals are taken for these at the least and most, as logarithms are finite


class Decided(NamedTuple):
    """What deciders are worth, policies first, with Intervals; a row has no figure that there is not.

    `difference` and `less` are the accuracy and the area less those of the thresholds.
    """

    rows: list[dict]  # system, said, accuracy, difference, retrieved, calls, accuracy_area, less
    curves: list[dict]  # system, budget, accuracy: several of a curve, one of decisions


class Result(NamedTuple):
    """What a threshold between two files is worth."""

    popular: str
    tail: str
    file: Rule
    figures: dict  # the figures that metrics/adaptive.json has
    relations: list[dict]  # rows of thresholds.parquet
    decided: Decided | None = None  # what files that decide when to retrieve are worth, beside this


def tune_from_files(
    questions: Questions,
    without: Answered,
    others: Sequence[Answered],
    search: str,
    seed: int,
    resamples: int,
) -> list[Result]:
    """Thresholds between `without`, for popular subjects, and each of `others`; the best held out comes first.

    They are fitted on the questions that all files answer. Those that decide when to retrieve are judged
    beside the thresholds of the first of `others`. Raises LongtailError where these are too few, and for two
    files that are right on the same questions.
    """
    everywhere = in_all([without, *others])
    deciders = [other for other in others[1:] if other.decides or not other.says]
    others = [*others[:1], *(other for other in others[1:] if other.says and not other.decides)]
    right = without.correct[everywhere]
    for other in others:
        if (right == other.correct[everywhere]).all():
            if not right.any() and not any((one.correct == 1).any() for one in (without, *others)):
                raise LongtailError(others[-1].lines[-1])  # what may be the reason
            raise LongtailError(
                f"{without.name} and {other.name} are right on the same {int(right.sum()):,} of {len(right):,} "
                "questions, expected answers without retrieval and others with it; bring both"
            )
    rows = everywhere & np.isfinite(questions.signal)
    chosen, signal = tuning.DEFAULTS.model_copy(update={"search": search}), questions.signal[rows]
    groups, counts = np.unique(questions.groups[rows], return_counts=True)
    if not len(groups) or counts.max() < chosen.min_questions:
        raise LongtailError(
            f"{questions.name}: {int(rows.sum()):,} questions of known {questions.signal_name} that all files answer, "
            f"expected {chosen.min_questions} at least of one group; bring more answers, or name coarser groups with "
            "--columns group=NAME"
        )
    if signal.min() < 0:
        row = int(np.flatnonzero(rows & (questions.signal == signal.min()))[0])
        raise LongtailError(
            f"{questions.name}: {questions.signal_name} of row {row + 1} is {signal.min():g}, expected 0 or more; "
            "leave the cell empty if it is not known, or add a constant to all"
        )
    results, ids = [], np.array(questions.ids, dtype=object)[rows]
    for other in others:
        right_without, right = without.correct[rows] == 1, other.correct[rows] == 1
        arrays = signal, questions.groups[rows], questions.subjects[rows], right_without, right
        how = {
            "settings": chosen,
            "seed": seed,
            "resamples": resamples,
            "searches": (search,),
            "ids": ids,
        }
        tuned = tuning.tune_arrays(*arrays, **how)
        names = {group: questions.names[group] for group in tuned.rule.thresholds}
        about = {"signal": questions.signal_name, "names": names}
        file = rule.of_tuned(tuned, without.name, other.name, search, questions.month, **about)
        decided = None
        if deciders and other is others[0]:
            place = {id_: place for place, id_ in enumerate(questions.ids)}
            places = np.array([place[id_] for id_ in tuned.pairs.ids])
            decided = judge_deciders(tuned, search, places, without, deciders, seed, resamples)
        results.append(
            Result(without.name, other.name, file, tuned.figures[search], tuned.relations, decided)
        )
    return sorted(results, key=lambda result: -result.figures["adaptive"]["value"])


def with_answers(answered: Sequence[Answered]) -> list[Answered]:
    """The same files, those of decisions alone with the answers that they pick of the first two.

    A question of which a later file does not say whether it retrieved has no answer of it. Raises LongtailError if the
    first file retrieved for a question, or the second did not.
    """
    closed, augmented = answered[:2]
    for one, place, wanted, does in (
        (closed, "first", 0, "never"),
        (augmented, "second", 1, "always"),
    ):
        known = one.calls[np.isfinite(one.calls)] > 0 if one.decides else []
        if (retrieved := int(np.sum(known))) != wanted * len(known):
            raise LongtailError(
                f"{one.name}: retrieved for {retrieved:,} of {len(known):,} questions, expected a {place} file that "
                f"{does} does; give files that decide last"
            )
    made = [closed, augmented]
    for one in answered[2:]:
        has, correct = one.has, one.correct
        if one.decides:
            has = has & np.isfinite(one.calls)
            correct = (
                correct if one.says else np.where(one.calls > 0, augmented.correct, closed.correct)
            )
        made.append(replace(one, correct=np.where(has, correct, NO_ANSWER)))
    return made


def judge_deciders(
    tuned: Tuned,
    search: str,
    places: np.ndarray,
    closed: Answered,
    deciders: Sequence[Answered],
    seed: int,
    n: int,
) -> Decided:
    """The deciders and the policies on the questions that the splits hold out, with intervals of `n` resamples.

    `places` (questions,) are where the files have the questions of `tuned.pairs`.
    """
    pairs, held = tuned.pairs, np.isfinite(tuned.judged.retrieved)
    above, below, subjects = pairs.right_above, pairs.right_below, pairs.subjects[held]
    made = {"always": (below, np.ones(len(below))), "never": (above, np.zeros(len(above)))}
    made |= {
        "oracle": (above | below, pairs.gains > 0)
    }  # name -> which questions are right, and retrievals of each
    names = [
        "file " * (one.name in ("adaptive", "at random", *made)) + one.name for one in deciders
    ]
    files = dict(zip(names, deciders, strict=True))
    made |= {
        name: (one.correct[places] == 1, one.calls[places])
        for name, one in files.items()
        if one.decides
    }
    less = {
        name: Column(right - 1.0 * above, {"": -pairs.gains}, apart=True)
        for name, (right, _) in made.items()
    }
    policy = held_out.policy(pairs, tuned.judged.retrieved, tuned.drawn, tuned.fitted)
    less = refits.refitted_means(less, {"": policy}, tuned.drawn)

    asked = [
        ((name, column), intervals.ratio, [values[held], held[held]])
        for name, (_, calls) in made.items()
        for column, values in (("retrieved", calls > 0), ("calls", calls))
    ]
    means = intervals.of_clusters(asked, subjects, draws.generator(seed, "calls"), n)
    adaptive, retrieved = (
        intervals.interval(tuned.figures[search][name]) for name in ("adaptive", "retrieved")
    )
    rows = [
        {"system": "adaptive", "accuracy": adaptive, "retrieved": retrieved, "calls": retrieved}
    ]
    for name, (right, _) in made.items():
        row = {
            "system": name,
            "accuracy": intervals.share(right[held], subjects),
            "difference": less[name],
        }
        row |= {column: means[name, column] for column in ("retrieved", "calls")}
        if name in files:
            share, said = (
                row["retrieved"].value,
                "its own answers" if files[name].says else "answers of the pair",
            )
            row["said"] = said + {1.0: "; always retrieves", 0.0: "; never retrieves"}.get(
                share, ""
            )
        rows.append(row)

    doubts = {
        f"doubt of {name}": one.doubt for name, one in ({closed.name: closed} | files).items()
    }
    doubts = {name: doubt[places] for name, doubt in doubts.items() if doubt is not None}
    rows += [{"system": name, "said": "a signal: no decisions"} for name in doubts]
    found = {"adaptive": _of_thresholds(tuned)}
    times = (
        held,
        *tuned.drawn.times.T,
    )  # how often each question counts: the held-out ones, then each resample
    for name, signal in ({"oracle": pairs.gains} | doubts).items():
        found[name] = np.stack(
            [curve(signal, pairs.right_above, pairs.gains, of) for of in times], axis=1
        )
    many, curves = len(np.unique(tuned.drawn.clusters)), {}
    for row in rows:
        if (name := row["system"]) in found:
            *curves[name], area = (
                refits.around(of[0], of[None, 1:], many).within(0, 1) for of in found[name]
            )
            of_area = found[name][-1] - found["adaptive"][-1]
            row["accuracy_area"] = area
            row |= (
                {"less": refits.around(of_area[0], of_area[None, 1:], many)}
                if of_area.any()
                else {}
            )
    points = [
        (name, float(BUDGETS[i]), of[i])
        for name, of in curves.items()
        for i in range(0, len(BUDGETS), 10)
    ]
    points += [
        (row["system"], row["retrieved"].value, row["accuracy"])
        for row in rows
        if row["system"] in files
    ]
    chance = float(above[held].mean() + below[held].mean()) / 2
    rows.append(
        {"system": "at random", "accuracy_area": intervals.Interval(chance, chance, chance)}
    )
    return Decided(
        rows, [dict(zip(("system", "budget", "accuracy"), point, strict=True)) for point in points]
    )


def curve(
    signal: np.ndarray, right: np.ndarray, gains: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """The accuracy at each of BUDGETS, and last the area under the curve of all budgets, (budgets + 1,).

    Questions retrieve in the order of falling `signal` (n,), those of equal signal together, so that the curve is
    straight there. `right` says which are right without retrieval, `gains` what retrieving gains each, `times` how
    often each counts.
    """
    order, times = np.argsort(-signal, kind="stable"), times.astype(float)
    last = np.flatnonzero(np.append(signal[order][1:] != signal[order][:-1], True))
    share = np.append(0.0, np.cumsum(times[order])[last]) / times.sum()
    accuracy = (
        right @ times + np.append(0.0, np.cumsum((times * gains)[order])[last])
    ) / times.sum()
    return np.append(np.interp(BUDGETS, share, accuracy), np.trapezoid(accuracy, share))


def _of_thresholds(tuned: Tuned) -> np.ndarray:
    """The same by the splits' thresholds, where a question is held out, and by the thresholds of each resample.

    The signal is the logarithm of threshold over popularity. Thresholds as they are retrieve where it is above 0.
    """
    pairs, members = tuned.pairs, tuned.pairs.members()
    group = np.repeat(
        np.arange(len(members)), [rows.stop - rows.start for rows in members.values()]
    )
    splits, whole = (  # (relations, splits or resamples)
        np.log(np.clip([cuts[relation] for relation in members], LEAST**2, MOST))
        for cuts in (tuned.fitted.splits, tuned.fitted.whole)
    )
    views, right, gains = np.log(np.maximum(pairs.signal, LEAST)), pairs.right_above, pairs.gains
    rows, split = np.nonzero(~tuned.train)
    held = 1 / np.bincount(rows)[rows]  # a question counts once over all splits
    curves = [curve(splits[group[rows], split] - views[rows], right[rows], gains[rows], held)]
    for column, times in enumerate(tuned.drawn.times.T):
        curves.append(curve(whole[group, column] - views, right, gains, times))
    return np.stack(curves, axis=1)
