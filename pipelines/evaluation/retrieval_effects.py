"""What retrieving changes: accuracy, recall and cost, with examples of where it helps and hurts (PopQA, 5-6, C.3)."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import numpy as np

from pipelines import draws, intervals, methods
from pipelines.evaluation import accuracy
from pipelines.evaluation.accuracy import HEAD, TAIL, Answers, Method, gain, mean_columns, share
from pipelines.intervals import NOTHING

TAIL_LESS_HEAD = "tail less head"
AGAINST = (  # pairs of methods that are compared, of every retriever; each is also compared with closed-book answers
    ("lsr", "dense"),
    ("genread", "bm25"),
    ("genread", "dense"),
    ("replug", "dense"),
    ("replug_lsr", "lsr"),
    ("replug_lsr", "replug"),
)
EXAMPLES = 4  # of each kind


def where_retrieval_helps(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Augmented and closed-book accuracy by method and group of questions: by popularity, by the passage's page.

    The gain in TAIL_LESS_HEAD is the gain in the tail less the gain at the head.
    """
    if "closed_book" not in answers.by_method:
        return []
    closed, asked, rows = answers.by_method["closed_book"], {}, []
    rules = {"": "correct", "_word": "word"}
    for method in _augmented(answers):
        augmented, groups = answers.by_method[method], _groups(answers, method)
        rows += [
            {"method": method, "group": name, "questions": int(group.sum())}
            | {f"closed_book{rule}": share(getattr(closed, column), group) for rule, column in rules.items()}
            | {f"augmented{rule}": share(getattr(augmented, column), group) for rule, column in rules.items()}
            for name, group in groups.items()
        ]
        tail_and_head = int((groups["tail"] | groups["head"]).sum())
        unknown = {f"{name}{rule}": NOTHING for rule in rules for name in ("closed_book", "augmented")}
        rows.append({"method": method, "group": TAIL_LESS_HEAD, "questions": tail_and_head} | unknown)
        for rule, column in rules.items():
            change = gain(answers, method, column)
            for name, group in groups.items():
                asked[method, name, rule] = intervals.ratio, mean_columns(change, group)
            ends = [*mean_columns(change, groups["tail"]), *mean_columns(change, groups["head"])]
            asked[method, TAIL_LESS_HEAD, rule] = _difference, ends
    found = answers.bootstraps(asked, seed, resamples)
    return [row | {f"gain{rule}": found[row["method"], row["group"], rule] for rule in rules} for row in rows]


def _difference(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]


def _augmented(answers: Answers) -> list[str]:
    return [method for method in answers.by_method if method != "closed_book"]


def _groups(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """Groups of questions by popularity and by whose page the method's passage is from, (n,) bool each."""
    ranks, answer = answers.ranks, answers.by_method[method]
    head, namesake = ranks >= 1 - HEAD, answer.is_namesake == 1
    return {
        "all": np.ones(len(ranks), bool),
        "tail": ranks < TAIL,
        "head": head,
        "subject's page": answer.is_subject == 1,
        "namesake's page": namesake,
        "namesake's page, head": namesake & head,
        "another page": (answer.is_subject == 0) & (answer.is_namesake == 0),
    }


def comparisons(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """One method less another: accuracy by both rules, and how often what they read holds an answer."""
    by_method = answers.by_method
    pairs = [(method, "closed_book") for method in _augmented(answers)] + list(AGAINST)
    for name in dict.fromkeys(methods.split(method)[1] for method in by_method):
        pairs += [(methods.named(kind, name), methods.named(other, name)) for kind, other in AGAINST if name]
        pairs += [(methods.named(kind, name), kind) for kind in methods.METHODS if name]  # the main retriever's
    pairs = [(method, against) for method, against in pairs if {method, against} <= set(by_method)]
    everyone = np.ones(len(answers.ids), bool)
    columns = {"gain": "correct", "gain_word": "word", "recall_gain": "has_answer"}
    asked = {
        (method, against, name): (getattr(by_method[method], column) - getattr(by_method[against], column), everyone)
        for method, against in pairs
        for name, column in columns.items()
    }
    found = answers.means(asked, seed, resamples)
    return [
        {"method": method, "against": against, "questions": len(answers.ids)}
        | {name: found[method, against, name] for name in columns}
        for method, against in pairs
    ]


def recall(answers: Answers) -> list[dict]:
    """How often what a method read holds an answer: over all questions, and by which answers are right (Table 1)."""
    rows = []
    for method in _augmented(answers):
        answer = answers.by_method[method]
        known, right = np.isfinite(answer.has_answer), answer.correct == 1
        if not known.any():
            continue
        cells = {"all": known}
        if "closed_book" in answers.by_method:
            closed = answers.by_method["closed_book"].correct == 1
            cells["both right"] = known & closed & right
            cells["only closed-book right"] = known & closed & ~right
            cells["only augmented right"] = known & ~closed & right
            cells["both wrong"] = known & ~closed & ~right
        rows += [
            {"method": method, "answers": name, "share": float(cell.sum() / known.sum()), "questions": int(cell.sum())}
            | {"recall": share(answer.has_answer, cell)}
            for name, cell in cells.items()
        ]
    return rows


def costs(answers: Answers) -> list[dict]:
    """Prompts and tokens of a question and money of 1,000, by method: means, NaN where a file does not say."""
    return [
        {"method": method, "questions": len(answers.ids)}
        | {name: _known_mean(getattr(answer, name)) for name in ("calls", "prompt_tokens", "new_tokens")}
        | {"cost_per_1000": 1000 * _known_mean(answer.cost)}
        for method, answer in answers.by_method.items()
    ]


def savings(answers: Answers, thresholds: dict[str, dict[str, float | None]], seed: int, resamples: int) -> list[dict]:
    """What retrieving only below `thresholds` saves against always retrieving, in per cent (Figures 11 and 12).

    `thresholds` are method -> relation -> popularity, None: always retrieve. Judged are the questions with a known
    popularity and a relation that has a threshold; `retrieved` is the share of them that retrieve.
    """
    if "closed_book" not in answers.by_method:
        return []
    closed, rows, asked = answers.by_method["closed_book"], [], {}
    for method in (method for method in answers.by_method if method in thresholds):
        cuts = {relation: math.inf if cut is None else cut for relation, cut in thresholds[method].items()}
        limits = np.array([cuts.get(relation, math.nan) for relation in answers.relations], float)  # of each question
        judged = np.isfinite(answers.popularity) & ~np.isnan(limits)
        retrieves = judged & (answers.popularity < limits)
        rows.append({"method": method, "questions": int(judged.sum()), "retrieved": _known_mean(retrieves[judged])})
        for name, always, never in _spent(answers.by_method[method], closed):
            known = judged & np.isfinite(always) & np.isfinite(never)
            adaptive = np.where(retrieves, always, never)
            asked[method, name] = _saved, [np.where(known, column, 0.0) for column in (adaptive, always)]
    found = answers.bootstraps(asked, seed, resamples)
    return [row | {f"{name}_saved": found[row["method"], name] for name in ("calls", "tokens", "cost")} for row in rows]


def _spent(augmented: Method, closed: Method) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(what is spent, with retrieval (n,), without (n,))."""
    tokens = [method.prompt_tokens + method.new_tokens for method in (augmented, closed)]
    return [("calls", augmented.calls, closed.calls), ("tokens", *tokens), ("cost", augmented.cost, closed.cost)]


def _saved(sums: np.ndarray) -> np.ndarray:
    return 100 * (1 - sums[:, 0] / sums[:, 1])


def _known_mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def halves(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Closed-book accuracy on two halves of the offline world's subjects, to tell knowledge from memorised questions.

    The language model's training text asks about one half in the evaluation's wording, about the other never. The draw
    is that of world.facts.World.asked_as_evaluated.
    """
    if not {"closed_book", "dense"} <= set(answers.by_method):
        return []
    qids = [str(subject).rsplit("/", 1)[-1] for subject in answers.subjects]
    asked = draws.uniforms(seed, "world/wording", qids) < 0.5
    groups = {"asked there in the evaluation's wording": asked, "never asked in it": ~asked}
    correlation = accuracy.correlations(answers, "closed_book", groups, seed, resamples)
    tail = {name: (gain(answers, "dense"), half & (answers.ranks < TAIL)) for name, half in groups.items()}
    gains = answers.means(tail, seed, resamples)
    return [
        {"subjects": name, **accuracy.both(answers.by_method["closed_book"], half)}
        | {"correlation": correlation[name], "tail_gain": gains[name]}
        for name, half in groups.items()
    ]


def examples(questions: Path, closed_book: Path, augmented: Path, seed: int) -> list[dict]:
    """Questions on which only one of two answers is right, by both rules: EXAMPLES of each kind (Tables 3 and 4).

    Each relation's question with the smallest draw by hash of (seed, question id) is a candidate; the EXAMPLES
    candidates with the smallest draws are chosen. Questions of unknown popularity are left out.
    """
    rows = duckdb.sql(
        """SELECT question_id, q.relation, q.question, q.possible_answers[1] AS answer, q.s_pop AS popularity,
                  a.doc_title, a.doc_has_answer, c.prediction AS closed_book, a.prediction AS augmented,
                  c.correct AS hurt
           FROM read_parquet(?) q
           JOIN read_parquet(?) c USING (question_id)
           JOIN read_parquet(?) a USING (question_id)
           WHERE c.correct != a.correct AND c.correct_word = c.correct AND a.correct_word = a.correct
                 AND q.s_pop IS NOT NULL
           ORDER BY question_id""",
        params=[str(questions), str(closed_book), str(augmented)],
    )
    table = rows.to_arrow_table().to_pylist()
    drawn = draws.uniforms(seed, "examples", [row["question_id"] for row in table])
    order = sorted(range(len(table)), key=lambda i: (drawn[i], table[i]["question_id"]))
    chosen = []
    for hurt, effect in ((False, "retrieving helps"), (True, "retrieving hurts")):
        of_relation: dict[str, dict] = {}
        for i in order:
            if table[i]["hurt"] is hurt:
                of_relation.setdefault(table[i]["relation"], table[i])
        chosen += [{"effect": effect} | row for row in list(of_relation.values())[:EXAMPLES]]
    return [{name: value for name, value in row.items() if name != "hurt"} for row in chosen]
