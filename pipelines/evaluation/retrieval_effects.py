"""What retrieving changes: accuracy by group of questions, and recall (PopQA, section 5)."""

from dataclasses import replace

import numpy as np

from pipelines.evaluation.accuracy import HEAD, TAIL, Group, by_groups
from pipelines.evaluation.answer_sets import GAINS, Answers, mean_columns
from pipelines.intervals import NOTHING, ratio

TAIL_LESS_HEAD = "tail less head"
SHARES = ("closed_book", "closed_book_word", "augmented", "augmented_word")  # columns


def where_retrieval_helps(answers: Answers) -> list[dict]:
    """Augmented and closed-book accuracy by method and group of questions.

    Groups go by popularity, and by whose page the passage is from. The gain in TAIL_LESS_HEAD is
    the gain in the tail less the gain at the head.
    """
    closed_book = answers.by_method.get("closed_book")
    if not closed_book:
        return []

    rows = []
    for method, augmented in answers.by_method.items():
        if method == "closed_book":
            continue
        masks = _groups(answers, method)
        groups = [Group({"group": name}, mask) for name, mask in masks.items()]
        pair = replace(answers, by_method={"closed_book": closed_book, method: augmented})
        measured = {}
        for row in by_groups(pair, groups, GAINS):
            measured[row["method"], row["group"]] = row
        for name in masks:
            closed_book_row = measured["closed_book", name]
            row = measured[method, name]
            row["closed_book"] = closed_book_row["substring"]
            row["closed_book_word"] = closed_book_row["word"]
            row["augmented"] = row.pop("substring")
            row["augmented_word"] = row.pop("word")
            rows.append(row)
        rows.append(_tail_less_head(answers, method))

    return rows


def _groups(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """Groups of questions by popularity and by whose page the method's passage is from, (n,) bool
    each."""
    method_answers = answers.by_method[method]
    subject = method_answers.doc_is_subject
    namesake = method_answers.doc_is_namesake
    from_namesake = namesake == 1
    head = answers.ranks >= 1 - HEAD
    return {
        "all": answers.everyone,
        "tail": answers.ranks < TAIL,
        "head": head,
        "subject's page": subject == 1,
        "namesake's page": from_namesake,
        "namesake's page, head": from_namesake & head,
        "another page": (subject == 0) & (namesake == 0),
    }


def _tail_less_head(answers: Answers, method: str) -> dict:
    """The row with the gain in the tail less the gain at the head, by both rules."""
    masks = _groups(answers, method)
    statistics = []
    for name, rule in GAINS.items():
        change = answers.gain(method, rule)
        tail = mean_columns(change, masks["tail"])
        head = mean_columns(change, masks["head"])
        statistics.append((name, _difference_of_means, [*tail, *head]))
    questions = int((masks["tail"] | masks["head"]).sum())
    row = {"method": method, "group": TAIL_LESS_HEAD, "questions": questions}
    row |= dict.fromkeys(SHARES, NOTHING)
    for name, difference in answers.bootstraps(statistics).items():
        row[name] = difference.within(-2, 2)
    return row


def _difference_of_means(sums: np.ndarray) -> np.ndarray:
    first, second = np.split(sums, 2, axis=1)
    return ratio(first) - ratio(second)


def recall(answers: Answers) -> list[dict]:
    """How often the passage holds an answer: over all questions, and by which answers are right
    (Table 1)."""
    closed_book = answers.by_method.get("closed_book")
    rows = []
    for method, method_answers in answers.by_method.items():
        judged = np.isfinite(method_answers.doc_has_answer)
        if method == "closed_book" or not judged.any():
            continue

        cells = {"all": judged}
        if closed_book:
            closed = closed_book.correct == 1
            right = method_answers.correct == 1
            cells["both right"] = judged & closed & right
            cells["only closed-book right"] = judged & closed & ~right
            cells["only augmented right"] = judged & ~closed & right
            cells["both wrong"] = judged & ~closed & ~right
        for name, cell in cells.items():
            row = {"method": method, "answers": name, "questions": int(cell.sum())}
            row["share"] = answers.share(cell.astype(float), judged)
            row["recall"] = answers.share(method_answers.doc_has_answer, cell)
            rows.append(row)

    return rows
