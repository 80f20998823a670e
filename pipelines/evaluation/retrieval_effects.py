"""What retrieving changes: accuracy and recall, with examples (PopQA, 5, C.3); what it costs, and thresholds save (6).

Thresholds are fitted on one side of every split of `adaptive.held_out` and judged here on the other.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines import draws
from pipelines.adaptive import held_out, refits
from pipelines.adaptive.pairs import read_pairs
from pipelines.adaptive.refits import Column, Policy, Resamples
from pipelines.evaluation.accuracy import GAINS, HEAD, TAIL, Answers, by_groups, gain, mean_columns
from pipelines.intervals import NOTHING, Interval
from pipelines.language.language import ENGLISH, Language
from pipelines.params import params
from pipelines.questions import matching
from pipelines.storage import database

TAIL_LESS_HEAD = "tail less head"
EXAMPLES = 4  # of each kind
PASSAGE = 1_000  # characters of a passage that an example has


def where_retrieval_helps(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Augmented and closed-book accuracy by method and group of questions: by popularity, by the passage's page.

    The gain in TAIL_LESS_HEAD is the gain in the tail less the gain at the head.
    """
    rows = []
    for method in [*answers.by_method] if "closed_book" in answers.by_method else []:
        if method == "closed_book":
            continue
        groups = _groups(answers, method)
        pair = replace(
            answers, by_method={name: answers.by_method[name] for name in ("closed_book", method)}
        )
        made = by_groups(
            pair, [({"group": name}, of) for name, of in groups.items()], seed, resamples, GAINS
        )
        for closed, augmented in zip(made[: len(groups)], made[len(groups) :], strict=True):
            shares = {"closed_book": closed["substring"], "closed_book_word": closed["word"]}
            shares |= {
                "augmented": augmented.pop("substring"),
                "augmented_word": augmented.pop("word"),
            }
            rows.append(augmented | shares)
        tail, head, asked = groups["tail"], groups["head"], []
        for name, rule in GAINS.items():
            change = gain(answers, method, rule)
            asked.append(
                (name, _difference, mean_columns(change, tail) + mean_columns(change, head))
            )
        row = {"method": method, "group": TAIL_LESS_HEAD, "questions": int((tail | head).sum())}
        rows.append(
            row | dict.fromkeys(shares, NOTHING) | answers.bootstraps(asked, seed, resamples)
        )
    return rows


def _difference(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]


def _groups(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """Groups of questions by popularity and by whose page the method's passage is from, (n,) bool each."""
    ranks, answer = answers.ranks, answers.by_method[method]
    head, namesake = ranks >= 1 - HEAD, answer.doc_is_namesake == 1
    return {
        "all": np.ones(len(ranks), bool),
        "tail": ranks < TAIL,
        "head": head,
        "subject's page": answer.doc_is_subject == 1,
        "namesake's page": namesake,
        "namesake's page, head": namesake & head,
        "another page": (answer.doc_is_subject == 0) & (answer.doc_is_namesake == 0),
    }


def recall(answers: Answers) -> list[dict]:
    """How often what a method read holds an answer: over all questions, and by which answers are right (Table 1)."""
    rows = []
    for method, answer in answers.by_method.items():
        known, right = np.isfinite(answer.doc_has_answer), answer.correct == 1
        if method == "closed_book" or not known.any():
            continue
        cells = {"all": known}
        if "closed_book" in answers.by_method:
            closed = answers.by_method["closed_book"].correct == 1
            cells |= {
                "both right": known & closed & right,
                "only closed-book right": known & closed & ~right,
            }
            cells |= {
                "only augmented right": known & ~closed & right,
                "both wrong": known & ~closed & ~right,
            }
        rows += [
            {"method": method, "answers": name, "questions": int(cell.sum())}
            | {
                "share": answers.share(1.0 * cell, known),
                "recall": answers.share(answer.doc_has_answer, cell),
            }
            for name, cell in cells.items()
        ]
    return rows


def examples(
    questions: Path,
    closed_book: Path,
    augmented: Path,
    docs: Path,
    seed: int,
    language: Language = ENGLISH,
) -> list[dict]:
    """Questions on which only one of two answers is right, by both rules: EXAMPLES of each kind (Tables 3 and 4).

    Each relation's question with the smallest draw by hash of (seed, question id) is a candidate; the EXAMPLES
    candidates with the smallest draws are chosen. Questions of unknown popularity are left out. The passage is what
    the language model or an import wrote, else the beginning of the best document in `docs`, if there is that file.
    """
    query = """SELECT CASE WHEN c.correct THEN 'retrieving hurts' ELSE 'retrieving helps' END AS effect,
              question_id, q.relation, q.question, q.possible_answers[1] AS answer, q.s_pop AS popularity, a.doc_title,
              a.doc_has_answer, a.passage, c.prediction AS closed_book, a.prediction AS augmented,
              q.possible_answers, a.doc_id
        FROM questions q JOIN closed_book c USING (question_id) JOIN augmented a USING (question_id)
        WHERE c.correct != a.correct AND c.correct_word = c.correct AND a.correct_word = a.correct
              AND q.s_pop IS NOT NULL
        ORDER BY question_id"""
    found = database.ask(
        query, None, questions=questions, closed_book=closed_book, augmented=augmented
    )
    table = found.to_arrow_table().to_pylist()
    drawn = draws.uniforms(seed, "examples", [row["question_id"] for row in table])
    candidates: dict[str, dict[str, dict]] = {"retrieving helps": {}, "retrieving hurts": {}}
    for row in (table[i] for i in np.argsort(drawn, kind="stable").tolist()):
        candidates[row["effect"]].setdefault(row["relation"], row)
    chosen = [
        row for of_relation in candidates.values() for row in list(of_relation.values())[:EXAMPLES]
    ]
    texts = _texts(docs, [row["doc_id"] for row in chosen]) if docs.is_file() else {}
    for row in chosen:
        passage = (row["passage"] or texts.get((row["doc_id"], row["doc_title"]), ""))[:PASSAGE]
        row["passage"], answers, _ = passage or None, row.pop("possible_answers"), row.pop("doc_id")
        row["passage_answer"] = next(
            (answer for answer in answers if matching.word(passage, [answer], language)), None
        )
    return chosen


def _texts(docs: Path, ids: list[str | None]) -> dict[tuple[str, str], str]:
    """The texts of these documents by id and title. The title tells other documents by the same id, of an import."""
    query = (
        "SELECT id, coalesce(title, ''), text FROM docs WHERE id IN (SELECT unnest(?::VARCHAR[]))"
    )
    return {
        (id_, title): text for id_, title, text in database.ask(query, [ids], docs=docs).fetchall()
    }


def costs(answers: Answers) -> list[dict]:
    """Prompts and tokens of a question and money of 1,000, by method: means, NaN where a file does not say."""
    rows = []
    for method, answer in answers.by_method.items():
        values = {
            "calls": answer.lm_calls,
            "prompt_tokens": answer.prompt_tokens,
            "new_tokens": answer.new_tokens,
        }
        known = {
            name: of[np.isfinite(of)]
            for name, of in (values | {"cost_per_1000": 1000 * answer.cost}).items()
        }
        means = {name: float(of.mean()) if len(of) else math.nan for name, of in known.items()}
        rows.append({"method": method, "questions": len(answers.ids)} | means)
    return rows


def savings(
    answers: Answers,
    questions: Path,
    files: Mapping[str, Path],
    chosen: params.Thresholds,
    seed: int,
    resamples: int,
) -> list[dict]:
    """What retrieving only below thresholds saves against always retrieving, in per cent (Figures 11 and 12).

    `answers` were read from `questions` and `files`. A method with too few questions for a threshold has no row.
    """
    rows = []
    for method in files if "closed_book" in files else ():
        pairs = read_pairs(questions, files["closed_book"], files[method])
        if method != "closed_book" and pairs.usable(chosen.min_questions):
            train, drawn = held_out.sides(pairs, chosen, seed, resamples)
            fitted = held_out.fit_all(pairs, train, drawn, chosen.search, chosen)
            retrieved = held_out.judge(pairs, train, fitted.splits).retrieved
            policy = held_out.policy(pairs, retrieved, drawn, fitted)
            of_pairs = answers.take(np.searchsorted(answers.ids.astype(str), pairs.ids.astype(str)))
            rows.append({"method": method} | saved(spent(of_pairs, method), policy, drawn))
    return rows


def spent(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """What is spent on each question with retrieval by a method, and without, (2, n)."""
    both = answers.by_method[method], answers.by_method["closed_book"]
    spent = {
        "calls": [of.lm_calls for of in both],
        "tokens": [of.prompt_tokens + of.new_tokens for of in both],
    }
    return {name: np.stack(of) for name, of in (spent | {"cost": [of.cost for of in both]}).items()}


def saved(spent: Mapping[str, np.ndarray], policy: Policy, drawn: Resamples) -> dict:
    """What thresholds save on the questions that splits hold out, of what is `spent`, (2, n) each.

    A figure is over all questions, each with the mean of the splits that hold it out. Its interval refits the
    thresholds to resampled subjects, `drawn`.
    """
    share = refits.refitted_means({"": Column(0.0, {"": 1.0}, apart=True)}, {"": policy}, drawn)[""]
    row = {"questions": int(np.isfinite(policy.retrieved).sum()), "retrieved": share}
    return row | {f"{name}_saved": _saved(both, policy, drawn) for name, both in spent.items()}


def _saved(both: np.ndarray, policy: Policy, drawn: Resamples) -> Interval:
    """What a policy saves of always retrieving, in per cent; questions of unknown costs (2, n) are left out."""
    known = np.isfinite(both).all(axis=0) & np.isfinite(policy.retrieved)
    policies, drawn = {"": policy.take(known)}, drawn.take(known)
    with_text, without = both[:, known]
    adaptive = Column(without, {"": with_text - without}, apart=True)
    columns = {"adaptive": adaptive, "always": Column(with_text, apart=True)}
    with np.errstate(invalid="ignore", divide="ignore"):
        spent = [refits.values(column, policies).sum() for column in columns.values()]
        again = refits.sums(columns, policies, drawn)
        saved, drawn_again = (
            100 * (1 - np.divide(*spent)),
            100 * (1 - again["adaptive"] / again["always"]),
        )
        return refits.around(saved, drawn_again, len(np.unique(drawn.clusters)))
