"""Findings are of every method of a run, say what can't be tested, and are corrected for how
many they are.
"""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, splits, summary
from analysis_rows import read_analyses
from report_files import findings_of, page_of
from small_results import METHODS, SETTINGS, TUNING

from pipelines.adaptive import rule
from pipelines.evaluation import tables
from pipelines.intervals import NOTHING, Interval
from pipelines.pages.section import VERDICTS, Finding
from pipelines.report import adaptive_section, findings, result_lines, result_section
from pipelines.report.measured import Group, Measured, hindrance
from pipelines.report.run_tables import Tables

CLEAR, UNCLEAR = Interval(0.2, 0.1, 0.3), Interval(0.1, -0.1, 0.3)


def found_in(data, chosen=SETTINGS) -> dict[str, Finding]:
    return {one.id: one for one in findings.findings(Tables(data, chosen))}


def finding(id_: str, figure: Interval, expected: int = 1, lacking: str = "") -> Finding:
    return Finding(
        id_, "paper", "claim", "measured", "PopQA", "dense", "", "", figure, expected, lacking
    )


def test_every_claim_has_a_finding_of_every_method(made):
    """The most accurate comes first."""
    folder, right = made
    rows = json.loads((folder / "findings.json").read_text())
    assert len({row["id"] for row in rows}) == len(rows)
    retrieving = [method for method in METHODS if method not in ("closed_book", "genread")]
    by_accuracy = sorted(retrieving, key=lambda method: -right[method].mean())
    for claim in ("tail", "tail-most", "head", "namesakes"):
        ids = [f"{claim}-popqa-{method}" for method in by_accuracy]
        assert [row["id"] for row in rows if row["id"] in ids] == ids
    by_id = {row["id"]: row for row in rows}
    recalls = [id_ for id_ in by_id if id_.startswith("recall-popqa-")]
    assert recalls == ["recall-popqa-lsr"], "LSR and REPLUG LSR read one retriever's documents"
    assert "; first document: " in by_id["recall-popqa-lsr"]["beside"]
    assert by_id["head-popqa-dense"]["expected_sign"] == -1
    for claim in ("replug", "one", "random"):
        for corpus in ("pile", "wikitext"):
            assert {f"{claim}-{corpus}-{retriever}" for retriever in ("bm25", "dense", "lsr")} <= {
                *by_id
            }
    assert (by_id["one-pile-bm25"]["verdict"], by_id["replug-pile-bm25"]["verdict"]) == (
        "the opposite",
        "shown",
    )
    ensemble = by_id["ensemble-popqa-replug_lsr"]
    assert ensemble["value"] == pytest.approx(right["replug_lsr"].mean() - right["lsr"].mean())
    assert (ensemble["verdict"], ensemble["beside"][:4]) == ("the opposite", "LSR:")
    assert (
        by_id["lsr-answers-popqa-replug_lsr"]["verdict"]
        == by_id["recall-popqa-lsr"]["verdict"]
        == "shown"
    )
    assert {
        "memory-popqa-davinci-closed_book",
        "tail-popqa-davinci-dense",
        "without-popqa-replug_lsr",
    } <= {*by_id}


def test_the_page_counts_what_was_tested(made):
    """It counts what was shown, and left by Holm's correction."""
    folder, _ = made
    rows, page = list(findings_of(folder).values()), page_of(folder)
    tested = [row for row in rows if row["verdict"] != "not testable"]
    assert [row["p"] is None for row in rows] == [row["verdict"] == "not testable" for row in rows]
    counts = [sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS[:2]]
    kept = [
        sum(row["verdict"] == verdict and row["remains_after_holm"] for row in rows)
        for verdict in VERDICTS[:2]
    ]
    could_not = len(rows) - len(tested)
    of_what = f"{len(tested)} tests of tiny, davinci on the fictional sample"
    assert f"Of {of_what}, {counts[0]} show what the papers claim and {counts[1]}" in page
    assert f"{kept[0]} still show a claim and {kept[1]} the opposite" in page
    assert f"{could_not} more numbers are <em>not testable</em>" in page
    own = re.findall(r'<li class="[a-z -]+" id="finding-.*?</li>', page)
    assert len(own) == len(rows)
    assert sum("not after Holm" in row for row in own) == sum(counts) - sum(kept)
    assert all(f'id="finding-{row["id"]}"' in page for row in rows)


def test_imported_models_have_findings(data):
    metrics = data / "metrics/adaptive.json"
    content = json.loads(metrics.read_text())
    content["popqa"]["tiny"]["bm25_below_dense"] = content["popqa"]["tiny"]["dense"]
    content["popqa"]["davinci"] = {
        "questions": 800,
        "web-search": content["popqa"]["tiny"]["dense"],
    }
    metrics.write_text(json.dumps(content))
    found = found_in(data)
    assert found["adaptive-popqa-bm25_below_dense"].method == "BM25 below dense"
    assert found["adaptive-popqa-davinci-web-search"].method == "web-search, davinci"
    assert found["adaptive-popqa-davinci-web-search"].verdict == "shown"
    assert "adaptive-popqa" not in found


@pytest.mark.parametrize(
    ("groups", "figure", "expected", "reason"),
    [
        ([(100, 0.5, 0.7)], CLEAR, 1, ""),
        ([(100, 0.5, 0.7)], UNCLEAR, 1, ""),
        ([(0, math.nan, math.nan)], NOTHING, 1, "There are no such questions."),
        ([(9, 0.5, 0.7)], CLEAR, 1, "There are only 9 questions, and a figure takes 10."),
        ([(100, 0.5, 0.7), (9, 0.5, 0.7)], CLEAR, 1, "There are only 9 questions, and a figure takes 10."),
        ([(100, 0.02, 0.09)], CLEAR, 1, "At most 9 of 100 questions are answered right."),
        ([(100, 0.02, 0.10)], CLEAR, 1, ""),
        ([(100, 0.91, 0.99)], CLEAR, 1, "Without it, 91 of 100 questions are answered right: hardly any can be won."),
        ([(100, 0.91, 0.80)], CLEAR, -1, ""),
        ([(100, 0.09, 0.60)], CLEAR, -1, "Without it, 9 of 100 questions are answered right: hardly any can be lost."),
        ([(100, 0.5, 0.5)], Interval(0.0, 0.0, 0.0), 1, "Nothing changes on any of the questions."),
        ([(100, 0.5)], NOTHING, 1, "There is no figure."),
    ],
)  # fmt: skip
def test_a_figure_that_can_show_no_effect_says_why(groups, figure, expected, reason):
    groups = [Group(*group) for group in groups]
    assert hindrance(Measured("popqa", "dense", figure, 0.0, groups), expected) == reason


def test_answers_by_letters_at_chance_show_nothing(data):
    """Those of four options are right on 25 % if they are guessed."""
    sets = [*SETTINGS.parts.answered, "mmlu"]
    parts = SETTINGS.parts.model_copy(update={"answered": sets})
    chosen = SimpleNamespace(**vars(SETTINGS) | {"parts": parts})
    rows_of = {name: read_analyses(data / "analyses", name) for name in ("accuracy", "comparisons")}

    def reason(low: float) -> str:
        for name, rows in rows_of.items():
            of_mmlu = [row | {"dataset": "mmlu"} for row in rows if row["lm"] == "tiny"]
            for row in of_mmlu:
                if name == "accuracy":
                    row["substring"] = Interval(0.4, low, 0.5)
            tables.write_analyses(data / "analyses", name, rows + of_mmlu)
        found = found_in(data, chosen)
        assert found["without-popqa-replug"].lacking == ""
        return found["without-mmlu-replug"].lacking

    assert reason(low=0.24) == "No accuracy is clearly above chance, 25 %."
    assert reason(low=0.26) == ""


def test_bits_of_a_model_below_chance_show_nothing(data):
    """A uniform guess over a vocabulary has its size as perplexity; here the model's is 20."""
    guess = "than a uniform guess over its {} tokens would."
    for vocabulary, reason in (
        (None, ""),
        (21, ""),
        (20, f"not clearly better {guess}"),
        (19, f"worse {guess}"),
    ):
        tables = Tables(data, SETTINGS)
        tables.vocabularies["tiny"] = vocabulary
        rows = [row for row in findings.findings(tables) if row.on == "WikiText"]
        assert {row.id.partition("-")[0] for row in rows} == {"replug", "one", "random", "lsr"}
        (lacking,) = {row.lacking for row in rows}
        assert lacking.endswith(reason.format(vocabulary))
        assert bool(lacking) == bool(reason)


def test_thresholds_an_oracle_barely_wins_are_not_testable(data):
    metrics = data / "metrics/adaptive.json"
    content = json.loads(metrics.read_text())
    figures = content["popqa"]["tiny"]["dense"][TUNING.search]
    better = max(figures["always"]["value"], figures["never"]["value"])
    for won, verdict in ((9, "not testable"), (10, "shown")):
        figures["oracle"]["value"] = better + won / figures["questions"]
        metrics.write_text(json.dumps(content))
        assert found_in(data)["adaptive-popqa-dense"].verdict == verdict
    assert won == 10


def test_a_finding_counts_the_questions_that_its_verdict_counts(data):
    """Those that splits held out; with few splits, not all."""
    right = np.arange(60) < 33
    pairs = made_pairs(60, right_above=right, right_below=right)
    two_splits = CHOSEN.model_copy(update={"splits": 2})
    held_out = pairs.take(~splits(pairs, two_splits).all(axis=1))
    counts = f"{held_out.right_below.sum()} of {len(held_out.ids)} questions are right, and an oracle would win "
    metrics = data / "metrics/adaptive.json"
    content = json.loads(metrics.read_text())
    judged = summary(pairs, chosen=two_splits)
    content["popqa"]["tiny"]["dense"][TUNING.search] = judged
    metrics.write_text(json.dumps(content))
    assert counts in judged["verdict"]
    assert found_in(data)["adaptive-popqa-dense"].lacking.startswith(counts)


def test_p_values_are_those_of_the_intervals():
    """A figure whose interval ends at zero has 0.05, one that is twice as far away 0.00009."""
    for sign in (1, -1):
        near, far = (finding("a", Interval(1.0, low, 9.0).times(sign)).p for low in (0.0, 0.5))
        assert (near, far) == (pytest.approx(0.05), pytest.approx(8.86e-5, rel=1e-2))
    assert finding("a", Interval(0.0, -1.0, 1.0)).p == 1.0


def test_holms_correction_stops_at_the_first_unclear():
    """Of four figures, the p-values 0.0125, 0.0167 and 0.025 are clear, and 0.05 for the last."""

    def remaining(*zs: float) -> list[bool]:
        made = [finding(str(i), Interval(z, z - 1.96, z + 1.96)) for i, z in enumerate(zs)]
        untested = finding("x", Interval(9.0, 8.9, 9.1), lacking="There is no figure.")
        return [one.remains for one in findings.holm([*made, untested])][:-1]

    assert remaining(2.0, 2.3, 2.45, 2.6) == [True] * 4
    assert remaining(2.0, 2.3, 2.35, 2.6) == [False, False, False, True]
    assert remaining(1.97, 1.97, 1.97, 1.97) == [False] * 4


@pytest.mark.parametrize(
    ("low", "remark"), [(0.0001, ", but not after Holm's correction"), (0.019, "")]
)
def test_the_headline_says_of_thresholds_what_their_card_says(data, low, remark):
    """LSR's thresholds are the best of several methods'."""
    metrics = data / "metrics/adaptive.json"
    content = json.loads(metrics.read_text())
    gain = Interval(0.02, low, 0.04 - low)
    _, verdict = rule.choose_policy(gain, "always", Interval(0.8, 0.7, 0.9))
    content["popqa"]["tiny"]["lsr"]["shrunk"] |= {"gain": gain.as_json(), "verdict": verdict}
    metrics.write_text(json.dumps(content))

    tables = Tables(data, SETTINGS)
    says = f"adaptive retrieval: clearly more accurate than always retrieving{remark}."
    assert result_section.section(tables).leads.endswith(says)
    leads = adaptive_section.section(tables).leads
    assert says in leads
    assert ("after Holm's correction with" in leads) == bool(remark)
    assert result_lines.result_lines([Path("data")], SETTINGS)[-1] == f"  advice: {verdict}{remark}"
    assert found_in(data)["adaptive-popqa-lsr"].is_lost_to_holm == bool(remark)


def test_verdicts_follow_from_sign_and_expectation():
    figures = [(CLEAR, 1), (CLEAR, -1), (UNCLEAR, 1), (CLEAR.times(-1), -1)]
    expected = ["shown", "the opposite", "no clear effect", "shown"]
    assert [finding("a", *one).verdict for one in figures] == expected
    assert finding("a", CLEAR, 1, "There is no figure.").verdict == "not testable"
