"""The section on accuracy and popularity (PopQA, sections 4 and 5)."""

from collections.abc import Iterator

from pipelines.evaluation.accuracy import LEAST_POPULAR, OF_PUBLISHED
from pipelines.evaluation.answer_metrics import ANSWER_METRICS
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.pages.section import Axis, Block, Figure, Row, Section, Table
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import in_percent, label, named, percent, show
from pipelines.report.curves import ACCURACY, BANDS, IN_DRAWN_SETS, VIEWS, rows_by_popularity
from pipelines.report.result_section import how
from pipelines.report.run_tables import ENOUGH, Tables

RELATIVE = "log popularity against the relation's mean, in its standard deviations"


def section(tables: Tables) -> Section:
    left_out = [row["why"] for row in tables.rows("left_out")]
    blocks: list[Block] = [_by_popularity(tables), _by_method(tables)]
    blocks += [_whose_answers(tables), " ".join(left_out), " ".join(_unknown(tables))]
    blocks += [_table(tables), _table_of_groups(tables), " ".join(_guessable(tables))]
    blocks += [_beside_guesses(tables), _table_of_guesses(tables), _table_by_popularity(tables)]
    blocks += [_by_relative_popularity(tables), _table_of_relations(tables)]

    missing = " ".join(_too_few_known(tables))
    return Section("accuracy", "Accuracy and popularity", blocks, _leads(tables), missing)


def _leads(tables: Tables) -> str:
    if not tables.first_methods:
        return ""
    first = tables.first_methods[0]
    bins = tables.rows(
        "accuracy_by_popularity",
        "lm = $lm AND dataset = $of AND method = $method",
        of=first["dataset"],
        method=first["method"],
    )

    begins = f"{how(first['method'])}, {tables.lm} is right on"
    if len(bins) > 1 and first["dataset"] in tables.drawn_sets:
        least = in_percent(bins[0]["substring"])
        most = in_percent(bins[-1]["substring"])
        return (
            f"{begins} {least} % of questions about the least popular subjects, and on {most} % "
            "about the most popular."
        )

    share = in_percent(first["substring"])
    return f"{begins} {share} % of the questions of {label(first['dataset'])}."


def _too_few_known(tables: Tables) -> Iterator[str]:
    for row in tables.first_methods:
        known = row["popularity_known"]
        if known < ENOUGH:
            yield (
                f"The subject's popularity is known for {known} of {show(row['questions'])} "
                f"questions of {label(row['dataset'])}."
            )
        if 0 < known < ENOUGH:
            yield f"To show accuracy by popularity, {ENOUGH} are needed (answer.max_questions)."


def _by_popularity(tables: Tables) -> Figure:
    return Figure(
        name="accuracy-by-popularity",
        kind="lines",
        rows=rows_by_popularity(tables, IN_DRAWN_SETS),
        x="views",
        y="substring",
        x_axis=VIEWS,
        y_axis=ACCURACY,
        caption="accuracy (substring) by decile of popularity, or by larger parts of a small set. "
        f"{BANDS}",
        by="dataset",
    )


def _by_method(tables: Tables) -> Figure:
    return Figure(
        name="accuracy",
        kind="bars",
        rows=tables.answered("accuracy"),
        series="lm",
        x="method",
        y="substring",
        y_axis=ACCURACY,
        caption="accuracy (substring) by method. Thin lines are 95 % intervals.",
        by="dataset",
    )


def _whose_answers(tables: Tables) -> str:
    imported = ", and those that were imported" if tables.imported_lms else ""
    return (
        f"These are the answers of {tables.lm}, the main language model{imported}. data/analyses "
        "has those of all language models. By substring, the published rule, an answer is right if "
        "it contains a gold answer, even “W” in “New York”. By word, the gold answer must stand as "
        "whole words. Figures are by substring, and those by popularity leave out REPLUG; tables "
        "have both rules and all methods."
    )


def _unknown(tables: Tables) -> Iterator[str]:
    for row in tables.first_methods:
        if ENOUGH <= row["popularity_known"] < row["questions"]:
            unknown = row["questions"] - row["popularity_known"]
            yield (
                f"The popularity of {show(unknown)} of {show(row['questions'])} answered questions "
                f"of {label(row['dataset'])} is unknown. The figures by popularity leave them out."
            )


def _table(tables: Tables) -> Table:
    return table_of(
        "accuracy",
        "Accuracy in per cent. Exact match and F1 are SQuAD's. Abstained: refusals that are not "
        "right. The correlation is that of being right (substring) with log popularity.",
        tables.answered("accuracy"),
        [
            "dataset",
            "lm",
            "method",
            "questions",
            "substring",
            "word",
            *ANSWER_METRICS,
            "correlation",
        ],
    )


def _table_of_groups(tables: Tables) -> Table:
    return table_of(
        "accuracy-by-group",
        "Accuracy in per cent on parts of the questions. Ambiguous: a question about another "
        f"subject has the same text. Least popular: the lowest "
        f"{percent(LEAST_POPULAR / OF_PUBLISHED)}. Guessable: without knowing the fact.",
        tables.answered("accuracy_by_group"),
        ["dataset", "lm", "method", "group", "questions", "substring", "word"],
        {"group": "which"},
    )


def _guessable(tables: Tables) -> Iterator[str]:
    """How many questions of each set can be answered without knowing the fact."""
    for row in tables.rows("guessable", "lm = $lm AND coalesce(relation, '') = ''"):
        guessable = in_percent(row["guessable"])
        named_answers = in_percent(row["named"])
        as_words = in_percent(row["majority_word"])
        published = in_percent(row["majority"])
        yield (
            f"{guessable} % of the questions of {label(row['dataset'])} can be answered without "
            f"knowing the fact: {named_answers} % name an answer, and the answer that most other "
            f"subjects of the relation have is right on {as_words} % as whole words and on "
            f"{published} % by the published rule."
        )


def _guesses(tables: Tables, where: str = "true") -> list[Row]:
    """What can be guessed by relation, beside the main language model without retrieval."""
    return tables.rows("guessable", f"lm = $lm AND relation <> '' AND {where}")


def _beside_guesses(tables: Tables) -> Figure:
    rows = []
    for row in _guesses(tables, f"questions >= {FEWEST}"):
        relation = {**row, "of": named(row["relation"])}
        rows.append({**relation, "series": "closed_book", "substring": row["closed_book"]})
        rows.append({**relation, "series": "usual answer", "substring": row["majority"]})

    return Figure(
        name="guessable",
        kind="bars",
        rows=rows,
        x="of",
        y="substring",
        y_axis=ACCURACY,
        caption=(
            "accuracy (substring) by relation without retrieval, and of giving the usual answer. A "
            "model that is no better shows no knowledge. Thin lines are 95 % intervals."
        ),
        by="dataset",
    )


def _table_of_guesses(tables: Tables) -> Table:
    return table_of(
        "guessable",
        "Per cent of each relation's questions that name an answer, that can be guessed, and on "
        f"which the usual answer, or {tables.lm}'s without retrieval, is right (substring).",
        _guesses(tables),
        [
            "relation",
            "dataset",
            "usual",
            "questions",
            "named",
            "guessable",
            "majority",
            "closed_book",
        ],
        {"usual": "usual answer", "majority": "it is right"},
    )


def _table_by_popularity(tables: Tables) -> Table:
    return table_of(
        "accuracy-by-popularity",
        "Accuracy in per cent by decile of popularity, and the change against answers without "
        "retrieval in points.",
        tables.answered("accuracy_by_popularity", IN_DRAWN_SETS),
        [
            "decile",
            "dataset",
            "lm",
            "method",
            "popularity",
            "questions",
            "substring",
            "word",
            "gain",
        ],
        {"decile": "from decile"},
    )


def _by_relative_popularity(tables: Tables) -> Figure:
    return Figure(
        name="accuracy-by-relative-popularity",
        kind="lines",
        rows=tables.answered(
            "accuracy_by_relative_popularity", f"{IN_DRAWN_SETS} AND method NOT LIKE 'replug%'"
        ),
        x="relative_popularity",
        y="substring",
        x_axis=Axis(RELATIVE),
        y_axis=ACCURACY,
        caption=f"accuracy (substring) by popularity within the question's relation. {BANDS}",
        by="dataset",
    )


def _table_of_relations(tables: Tables) -> Table:
    return table_of(
        "accuracy-by-relation",
        "Accuracy in per cent by relation, and the correlation of being right (substring) with log "
        "popularity.",
        tables.answered("accuracy_by_relation"),
        ["relation", "dataset", "lm", "method", "questions", "substring", "word", "correlation"],
    )
