"""The main result: the first screen of the report, and the last lines of a run on a terminal."""

from pipelines.methods import ENSEMBLES, Method
from pipelines.pages.section import Block, Figure, Link, Row, Section
from pipelines.pages.table_rows import is_known, table_of
from pipelines.pages.thresholds import advice
from pipelines.pages.values import alone, in_percent, label, points
from pipelines.report import adaptive_metrics, replug_section
from pipelines.report.curves import ACCURACY, IN_DRAWN_SETS, VIEWS, with_views
from pipelines.report.findings import after_holm
from pipelines.report.run_tables import Tables

POLICIES = {policy: label(policy) for policy in ("never", "always", "adaptive")}
POPQA = "Mallen et al. 2023, When Not to Trust Language Models (PopQA)"
REPLUG = "Shi et al. 2023, REPLUG: Retrieval-Augmented Black-Box Language Models"


def section(tables: Tables) -> Section:
    shares = main_shares(tables)
    bits = main_bits(tables)
    figure = Figure(
        name="result",
        kind="lines",
        rows=_main_curve(tables, shares),
        x="views",
        y="substring",
        x_axis=VIEWS,
        y_axis=ACCURACY,
        caption="accuracy by decile of the subject's popularity. Bands are 95 % intervals.",
        by="dataset",
    )

    accuracies = table_of(
        "result",
        _caption(shares),
        shares,
        ["policy", "accuracy"],
        {"policy": "retrieving"},
    )

    saved = table_of(
        "result-saved",
        "",
        _saved(shares),
        ["policy", "retrieved"],
        {"policy": "saved", "retrieved": "share of always"},
    )

    bits_per_byte = table_of(
        "result",
        f"Bits per byte of {label(tables.corpus)}, with 95 % intervals; fewer are better.",
        bits,
        ["policy", "bits_per_byte"],
        {"policy": "documents"},
    )

    blocks: list[Block] = [
        accuracies,
        saved,
        bits_per_byte,
        figure,
        *_papers(tables),
    ]
    leads = _leads_of_shares(tables, shares) if shares else _leads_of_bits(tables, bits)
    return Section("result", "The main result", blocks, leads)


def how(method: str) -> str:
    """How a method answers, as a sentence begins with it."""
    if method == "closed_book":
        return "Without retrieval"
    passages = "" if Method.of_name(method).kind in ENSEMBLES else "passages from "
    return f"With {passages}{label(method)}"


def main_shares(tables: Tables) -> list[Row]:
    """Accuracy without retrieved text, always with it, and with it below popularity thresholds.

    They are those of the method with the highest adaptive accuracy. Where no thresholds were
    fitted, they are those of the first method and of the best other one, on the first question set.
    """
    best = adaptive_metrics.best_policy(tables)
    if best is None:
        return _first_and_best(tables)

    shares = []
    for policy, words in POLICIES.items():
        method = "closed_book" if policy == "never" else best["method"]
        accuracy = {"of": best["dataset"], "policy": words, "accuracy": best[policy]}
        shares.append({**best, "method": method, **accuracy})

    return shares


def _first_and_best(tables: Tables) -> list[Row]:
    rows = []
    for row in tables.answered("accuracy"):
        rows.append({**row, "accuracy": row["substring"], "of": row["dataset"]})

    of_first = []
    for row in rows:
        is_of_first = (row["of"], row["lm"]) == (rows[0]["of"], rows[0]["lm"])
        if is_of_first and is_known(row["accuracy"]):
            of_first.append({**row, "policy": label(row["method"])})

    best = sorted(of_first[1:], key=lambda row: -row["accuracy"].value)
    return [*of_first[:1], *best[:1]]


def _main_curve(tables: Tables, shares: list[Row]) -> list[Row]:
    """Accuracy by popularity of the methods of `shares`, on sets of enough known popularities."""
    methods = {(row["of"], row["lm"], row["method"]) for row in shares}
    curve = []
    for row in with_views(tables.answered("accuracy_by_popularity", IN_DRAWN_SETS)):
        if (row["dataset"], row["lm"], row["method"]) in methods:
            curve.append(row)
    return curve


def main_bits(tables: Tables) -> list[Row]:
    """Of a run without answers, bits per byte without documents, with the best retriever's, and
    random ones.
    """
    saved = replug_section.saved_by_documents(tables)
    if main_shares(tables) or not saved:
        return []
    none = next(row for row in replug_section.bits_by_k(tables) if row["retriever"] == "none")
    return [{**row, "policy": label(row["retriever"])} for row in (none, *saved)]


def _saved(shares: list[Row]) -> list[Row]:
    """The share of retrievals that adaptive retrieval saves, where it is the advice."""
    if len(shares) < 3 or not advice(shares[2]).startswith(POLICIES["adaptive"]):
        return []
    retrieved = shares[2]["retrieved"].rest
    return [{"policy": "retrievals saved", "retrieved": retrieved}]


def _caption(shares: list[Row]) -> str:
    if not shares:
        return ""
    name = label(shares[0]["of"])
    if len(shares) < 3:
        return f"Accuracy on {name} by the rule substring, with 95 % intervals."
    return (
        f"Held-out accuracy on {name} by the rule substring. Adaptive retrieval gains "
        f"{points(shares[2]['gain'])} over the better of the two other policies. It is most "
        f"accurate with {label(shares[1]['method'])}."
    )


def _leads_of_shares(tables: Tables, shares: list[Row]) -> str:
    percents = [in_percent(row["accuracy"]) for row in shares]
    name = label(shares[0]["of"])
    lm = f"the model {shares[0]['lm']}"
    if len(shares) == 1:
        begins = how(shares[0]["method"])
        return f"{begins}, {lm} is right on {percents[0]} % of the questions of {name}."

    leads = (
        f"{how(shares[1]['method'])}, {lm} is right on {percents[1]} % of {name} instead of "
        f"{percents[0]} %."
    )
    if len(shares) > 2:
        verdict = advice(shares[2]) + after_holm(tables, shares[2])
        leads += f" For this model, the advice is {verdict}."
    return leads


def _leads_of_bits(tables: Tables, bits: list[Row]) -> str:
    if not bits:
        return ""
    without = alone(bits[0]["bits_per_byte"])
    with_best = alone(bits[1]["bits_per_byte"])
    return (
        f"{tables.lm} needs {with_best} bits per byte of {label(tables.corpus)} with documents "
        f"from {label(bits[1]['retriever'])}, instead of {without} without documents."
    )


def _papers(tables: Tables) -> list[Link]:
    """The papers whose experiments the run has."""
    parts = tables.settings.parts
    links = []
    if tables.answered_sets:
        links.append(Link(POPQA, "https://arxiv.org/abs/2212.10511"))
    if parts.scored or "replug" in tables.settings.ways:
        links.append(Link(REPLUG, "https://arxiv.org/abs/2301.12652"))
    return links
