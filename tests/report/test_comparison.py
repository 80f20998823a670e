"""The papers' numbers held against small runs: the rule at its edges, what counts, and what
only stands beside.
"""

import csv
import json
import math
import re
import shutil
from collections import Counter
from dataclasses import astuple, replace

import pytest
import yaml
from dvc.repo import Repo

from flows import profiles
from flows.commands import looking
from pipelines.answering import latency
from pipelines.intervals import NOTHING, Interval
from pipelines.params import params_file
from pipelines.report import comparison, comparison_page, papers
from pipelines.report.comparison import Run, alike, verdict
from pipelines.report.papers import Group, Number

PRINTED = Number("GPT-2", "original", 35.0, "%", tolerance=0.5)
REACH = {kind: [PRINTED] for kind in ("gone", "teacher", "unmeasured", "reached", "unreached")}
FIND = {
    "table": "accuracy",
    "dataset": "popqa",
    "method": "closed_book",
    "value": "substring",
    "times": 100,
}


@pytest.mark.parametrize(
    ("low", "high", "bound", "expected"),
    [
        (33.0, 34.5, "", "ok"),  # the interval ends where 35 %, rounded, begins
        (33.0, 34.49, "", "differs"),
        (35.5, 37.0, "", "ok"),
        (35.51, 37.0, "", "differs"),
        (35.2, 35.2, "", "ok"),  # a figure without an interval
        (20.0, 21.0, "at most", "ok"),
        (35.5, 37.0, "at most", "ok"),
        (35.51, 37.0, "at most", "differs"),
    ],
)
def test_a_number_is_ok_where_our_interval_meets_it_as_printed(low, high, bound, expected):
    assert verdict(replace(PRINTED, bound=bound), Interval((low + high) / 2, low, high)) == expected
    edge = Number("GPT-2", "original", 1.33, "bits per byte", tolerance=0.005)
    assert verdict(edge, Interval(1.34, 1.335, 1.345)) == "ok", "it is lost to floating point"


def test_a_model_is_known_by_the_last_part_of_its_path():
    for name, other, same in (
        ("/models/opt-1.3b/", "opt-1.3B", True),
        ("opt-1_3b", "opt-1.3b", True),  # a name of imported answers, which has no dots
        ("gpt2-xl", "gpt2", False),
        ("davinci-002", "text-davinci-002", False),  # OpenAI's later model is not the paper's
        (None, "gpt2", False),
    ):
        assert alike(name, other) is same, (name, other)


@pytest.fixture(scope="module")
def outputs(written, tmp_path_factory):
    """The tables of a run with two language models and one imported, on real passages of
    Wikipedia.
    """
    data = shutil.copytree(written[0], tmp_path_factory.mktemp("run") / "data")
    raw = [{"path": "wikipedia/psgs_w100.tsv.gz", "dataset": "wikipedia"}]
    (data / "raw/manifest.json").write_text(json.dumps(raw))
    return data


def composed(root, **changes) -> dict:
    """The sample's params as a run on real files has them, with two local models."""
    values = yaml.safe_load(profiles.compose("sample", root))
    values["fetch"]["source"] = "files"
    values["lms"] = ["tiny", "big"]
    local = values["lm"]["tiny"] | {"source": "pretrained", "training": None}
    values["lm"] = {
        "tiny": local | {"path": "models/gpt2"},
        "big": local | {"path": "facebook/opt-1.3b"},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        (values["retriever"]["dense"] if section == "retriever" else values[section])[name] = value
    return values


@pytest.fixture
def run(outputs, root):
    """A function that opens the run with changed params."""

    def opened(setups=None, finished=True, **changes) -> Run:
        return Run(outputs, params_file.parse(composed(root, **changes)), setups or {}, finished)

    return opened


def of(lm: str, *setups: str, **find) -> Number:
    return replace(PRINTED, lm=[lm], setups=list(setups), find=FIND | find)


def test_a_result_in_the_papers_set_up_gets_a_verdict(run):
    opened = run({"size": {"questions.popqa": 800}, "shots": {"answer.n_shots": 0}})
    ours = opened.figures.measure(FIND, "tiny")
    assert ours.low < ours.value < ours.high
    for printed, expected in ((round(ours.value), "ok"), (90.0, "differs")):
        compared = opened.compare(replace(of("gpt2", "size", "shots"), value=printed))
        assert (compared.verdict, compared.ours, compared.lm, compared.needs) == (
            expected,
            ours,
            "tiny",
            (),
        )
        assert compared.beside == NOTHING


def test_published_passages_stand_for_their_search(run):
    """In all rows that retrieve one passage by one search, with what else a row needs."""
    published = papers.read_papers()
    opened = run(published.setups)
    searches = {"given_contriever": "dense", "given_bm25": "bm25"}
    opened.params = opened.params.model_copy(update={"ways": ["closed_book", *searches]})
    accepted: Counter = Counter()
    for group in published.groups:
        for number in group.numbers:
            given = opened.compare(number).number
            if given == number:
                continue
            (way,) = [way for way in searches if way in str(given.find)]
            assert str(given.find).replace(way, searches[way]) == str(number.find)
            replaced = {"Wikipedia 2018", "Contriever MS MARCO"} & {*number.setups}
            assert {*number.setups} - {*given.setups} == replaced
            accepted[group.place.partition(",")[0], way] += 1
    assert accepted == {
        ("Table 1", "given_contriever"): 9,
        ("section 5.2", "given_contriever"): 1,
        ("section 6.2", "given_contriever"): 4,
        ("section 6.2", "given_bm25"): 2,
        ("the authors' notebook adaptive-retrieval.ipynb", "given_bm25"): 3,
        ("appendix B", "given_contriever"): 2,
        ("appendix B", "given_bm25"): 2,
    }

    ways = {"ways": ["dense", "given_contriever"]}
    opened.params = opened.params.model_copy(update=ways)
    for method in searches.values():
        number = of("gpt2", "one passage", "Wikipedia 2018", method=method)
        assert opened.compare(number).number == number, "it searches, or lacks the passages"


@pytest.mark.parametrize(
    ("setup", "changes", "named"),
    [
        ({"questions.popqa": 14267}, {}, "questions.popqa 14,267 (here 800)"),
        (
            {"retriever.path": "facebook/contriever"},
            {},
            "retriever.path facebook/contriever (here none)",
        ),
        ({"replug.top_k": 10}, {"replug__top_k": 3}, "replug.top_k 10 (here 3)"),
        (
            {"metrics.corpus_pile.documents": ">= 36000000"},
            {},
            "metrics.corpus_pile.documents >= 36000000 (here",
        ),
        ({"files.wikipedia": ["*201812*"]}, {}, "files.wikipedia *201812* (here psgs_w100.tsv.gz)"),
        ({"lsr.lm": ["curie"]}, {}, "lsr.lm curie (here gpt2)"),
        ({"corpus.pile.test_files": "set"}, {}, "corpus.pile.test_files set (here none)"),
    ],
)
def test_a_result_in_another_set_up_stands_beside(run, setup, changes, named):
    opened = run({"theirs": setup}, **changes)
    compared = opened.compare(of("gpt2", "theirs"))
    assert (compared.verdict, compared.ours, compared.lm) == ("not run here", NOTHING, "tiny")
    assert compared.beside == opened.figures.measure(FIND, "tiny")
    (need,) = compared.needs
    assert need.startswith(named)
    same = {
        "files.wikipedia": ["*201812*", "*psgs_w100*"],
        "retriever.query_path": None,
        "questions.popqa": ">= 800",
    }
    same |= {
        "lsr.lm": ["gpt2"],
        "retriever.path": "contriever",
        "corpus.wikitext.test_files": "set",
    }
    assert (
        run(retriever__path="models/contriever", retriever__source="pretrained").differences(
            same, "tiny"
        )
        == []
    )


def test_another_model_stands_beside_the_main_one_first(run):
    opened = run()
    compared = opened.compare(of("gpt-neox-20b"))
    assert (compared.verdict, compared.lm) == ("not run here", "tiny")
    assert compared.needs == ("the language model gpt-neox-20b",)
    assert compared.beside == opened.figures.measure(FIND, "tiny")
    assert opened.compare(of("opt-1.3b")).lm == "big"
    find = {"table": "bits_per_byte", "corpus": "pile", "retriever": "none", "k": 0}
    find |= {"value": "bits_per_byte"}
    compared = opened.compare(replace(PRINTED, lm=["opt-1.3b"], find=find))
    assert (compared.lm, compared.needs, compared.ours.value) == ("big", (), 0.5)


def test_a_fictional_world_is_never_shown(run):
    finished = "a finished run; `longtail run` brings every stage up to date"
    for opened, need in (
        (run(fetch__source="world"), "real data"),
        (run(finished=False), finished),
    ):
        compared = opened.compare(of("gpt2"))
        assert (compared.ours, compared.beside, compared.needs) == (NOTHING, NOTHING, (need,))


def test_how_imported_answers_were_made_is_not_asked(run):
    """What is asked is the question set, and the name that their model was given, which may
    have dots.
    """
    setups = {
        "theirs": {"answer.n_shots": 15, "files.wikipedia": ["*201812*"]},
        "size": {"questions.popqa": 800},
    }
    opened = run(setups)
    assert opened.compare(of("davinci", "theirs", "size")).verdict in ("ok", "differs")
    assert opened.compare(of("gpt2", "theirs", "size")).needs[0] == "answer.n_shots 15 (here 0)"
    setups["size"] = {"questions.popqa": 14267}
    assert opened.compare(of("davinci", "theirs", "size")).needs == (
        "questions.popqa 14,267 (here 800)",
    )
    gain = {"gain": {"value": 0.5, "low": 0, "high": 1}}
    opened.figures.metrics["adaptive"] = {"popqa": {"opt-1.3b": {"bm25": {"exact": gain}}}}
    find = {"metrics": "adaptive", "key": "popqa.{lm}.bm25.exact.gain"}
    assert opened.figures.measure(find, "opt-1.3b") == Interval(0.5, 0, 1)


def test_derived_figures(run):
    opened = run()
    gain = {"table": "comparisons", "dataset": "popqa", "method": "dense"}
    gain |= {"value": "relative_gain"}
    closed_book, dense = (
        opened.figures.measure(FIND | {"method": method}, "tiny").value
        for method in ("closed_book", "dense")
    )
    relative = opened.figures.measure(gain, "tiny").value
    assert relative == pytest.approx(100 * (dense / closed_book - 1))
    share = {
        "table": "recall",
        "dataset": "popqa",
        "method": "dense",
        "answers": "both right",
        "value": "share",
    }
    measured = opened.figures.measure(share, "tiny")
    (row,) = opened.figures.rows(
        {key: value for key, value in share.items() if key != "value"}, "tiny"
    )
    assert measured.value == pytest.approx(row["questions"] / 800)
    assert measured.low < measured.value < measured.high
    saved = {
        "table": "bits_per_byte",
        "corpus": "pile",
        "retriever": "dense",
        "k": 10,
        "value": "perplexity_saved",
    }
    assert opened.figures.measure(saved, "tiny").value == pytest.approx(
        100 * (1 - 20.0**-0.1)
    )  # 10 % of the bits of 20
    assert opened.figures.measure(saved | {"k": 7}, "tiny") == NOTHING
    least = {"least_popular": 100, "dataset": "popqa", "method": "closed_book"}
    assert (
        opened.figures.measure(least, "tiny").value
        < opened.figures.measure(FIND, "tiny").value / 100 - 0.1
    )
    assert opened.figures.measure(least | {"least_popular": 4000}, "tiny") == NOTHING


def test_the_verdict_says_which_way_gave_our_figure(run):
    """The paper's search or the authors' bins."""
    number = replace(PRINTED, lm=["gpt2"], value=0.0, also=1.0)
    setups = {name: papers.read_papers().setups[name] for name in ("search", "ensemble")}
    key = "popqa.{lm}.bm25.{search}.retrieved"
    number = replace(
        number,
        setups=["search"],
        find={"metrics": "adaptive", "key": key, "way": "thresholds.search"},
    )
    for search, said in (("exact", "ok (exact)"), ("bins", "ok (bins)")):
        opened = run(setups, thresholds__search=search, replug__vote=True)
        shares = {
            name: {"retrieved": {"value": at, "low": at, "high": at}}
            for name, at in (("exact", 0.4), ("bins", 0.5))
        }
        opened.figures.metrics["adaptive"] = {"popqa": {"tiny": {"bm25": shares}}}
        compared = opened.compare(number)
        assert (compared.verdict_and_way, compared.ours.value) == (
            said,
            shares[search]["retrieved"]["value"],
        )
        assert opened.differences(setups["ensemble"], "tiny") == [], (
            "whether answers vote is no difference"
        )
    assert run(setups).compare(number).needs == ("thresholds.search exact or bins (here shrunk)",)


def test_what_thresholds_save_of_the_seconds(run, monkeypatch, tmp_path):
    """A median of 2 s without passages and 4 s with them: twice as long, and half of what is
    not retrieved is saved.
    """
    taken = {
        "closed_book": {
            "median": {"value": 2.0, "low": 1.8, "high": 2.2},
            "machine": "one",
            "server": False,
        },
        "dense": {
            "median": {"value": 4.0, "low": 3.6, "high": 4.4},
            "machine": "one",
            "server": False,
        },
    }
    opened = run()
    shutil.copytree(opened.data / "predictions", tmp_path / "predictions")
    opened.figures.data = tmp_path
    monkeypatch.setattr(
        opened.figures,
        "mean",
        lambda find, lm: {"tiny": Interval(0.8, 0.75, 0.85), "big": NOTHING}[lm],
    )
    for method, figures in taken.items():
        (file,) = (opened.figures.data / "predictions/popqa/tiny").glob(f"{method}*.parquet")
        path = opened.figures.data / latency.FOLDER / "popqa/tiny" / f"{file.stem}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures))
    of = {"dataset": "popqa", "method": "dense"}
    longer, saved = (
        opened.figures.measure({"seconds": what} | of, "tiny") for what in ("taken", "saved")
    )
    assert astuple(longer) == pytest.approx((2, 3.6 / 2.2, 4.4 / 1.8))
    assert astuple(saved) == pytest.approx((10, 15 * (1 - 2.2 / 3.6), 25 * (1 - 1.8 / 4.4)))
    number = replace(
        PRINTED, lm=["opt-1.3b", "gpt2"], find={"seconds": "saved"} | of, value=9.0, bound="at most"
    )
    compared = opened.compare(number)
    assert (compared.lm, compared.verdict) == ("tiny", "ok"), "the model that saves most"
    for changed in ({"machine": "another"}, {"server": True}):
        path.write_text(json.dumps(taken["dense"] | changed))
        assert opened.compare(number).needs == (comparison.SECONDS,)
    assert math.isnan(opened.figures.measure({"seconds": "taken"} | of, "big").value), (
        "it has no seconds"
    )


def test_the_mean_of_categories_has_an_error(run):
    find = {
        "table": "accuracy",
        "dataset": "popqa",
        "method": ["closed_book", "dense"],
        "value": "substring",
    }
    opened = run()
    one, other = (
        opened.figures.measure(find | {"method": method}, "tiny") for method in find["method"]
    )
    mean = opened.figures.measure(find, "tiny")
    assert mean.value == pytest.approx((one.value + other.value) / 2)
    assert mean.high - mean.value < (one.high - one.value + other.high - other.value) / 2
    assert opened.figures.measure(find | {"method": ["closed_book", "nothing"]}, "tiny") == NOTHING


def test_the_page_has_every_number(run):
    published = papers.read_papers()
    opened = run(published.setups)
    groups = [
        (group, [opened.compare(number) for number in group.numbers]) for group in published.groups
    ]
    page = comparison_page.page(groups, published, "mine", REACH, complete=True)
    assert (
        "state 5 results as numbers. 2 of them can still be reached.\nThe shipped profiles ask for 1 of these"
        in page
    )
    rows = [line for line in page.splitlines() if line.startswith("| ") and "not run here" in line]
    assert len(rows) == sum(len(group.numbers) for group in published.groups)
    (count,) = comparison_page.comparison_lines(groups)
    assert (
        count
        == comparison_page.count_agreeing(groups)
        == f"0 ok, 0 differs, {len(rows)} not run here"
    )
    group = Group("PopQA", "Table 9", "Accuracy " * 30, "paper-popqa", [], [of("opt"), of("gpt2")])
    lines = list(
        comparison_page.comparison_lines(
            [(group, [run().compare(number) for number in group.numbers])]
        )
    )
    assert max(map(len, lines)) <= comparison_page.WIDTH
    (figures,) = [line for line in lines[lines.index("  GPT-2: original") :] if "published" in line]
    assert re.fullmatch("    published 35 %; ours .*; (ok|differs)", figures)


@pytest.fixture
def longtail(outputs, tmp_path, monkeypatch, call, root):
    """The command in a DVC project that has these outputs, and whose stage `analyse` follows
    answer.n_shots.
    """
    shutil.copytree(outputs, tmp_path / "data")
    shutil.copytree(root / "conf", tmp_path / "conf")
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  analyse:\n    cmd: 'true'\n    params: [answer.n_shots]\n"
    )
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(composed(root)))
    monkeypatch.chdir(tmp_path)
    with Repo.init(no_scm=True) as repo:
        repo.reproduce()

    def reproduce(*words, **changes) -> list[str]:
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(composed(root, **changes)))
        code, said, _ = call("reproduce", *words)
        assert not code
        return said.splitlines()

    return reproduce


def test_the_command_prints_the_totals(longtail, tmp_path):
    """It writes the page beside the report or the project's own."""
    published = tmp_path / "docs/measured/reproduction.md"
    page = tmp_path / "data/reproduction/reproduction.md"
    numbers = tmp_path / "docs/measured/tables/reproduction.csv"
    published.parent.mkdir(parents=True)
    said = longtail("--docs")
    assert said[0].startswith("0 ok, 0 differs, ")
    assert said[-1].endswith(": docs/measured/tables/reproduction.csv")
    # bits per byte of the small run, beside GPT-2's
    assert "0.900 [0.880, 0.920] (tiny)" in numbers.read_text()
    assert "(tables/reproduction.csv)" in published.read_text()
    assert not page.exists()

    published.write_text("the project's own")
    said = longtail(answer__n_shots=5)
    assert said[-1] == "all numbers, and what each of them needs: data/reproduction/reproduction.md"
    assert "(../../docs/params.md)" in page.read_text()
    assert "a finished run; `longtail run`" in page.read_text(), (
        "the outputs are not of these params"
    )
    assert "0.900" not in page.read_text()
    assert published.read_text() == "the project's own"


def test_the_page_in_the_repository_has_the_files_numbers(root):
    """Whatever run it is of: published numbers, what they need, and where ours is found."""
    published = papers.read_papers()
    numbers = [
        (group, [comparison.Compared(number) for number in group.numbers])
        for group in published.groups
    ]
    names = {group.profile for group in published.groups}
    chosen = {
        name: params_file.parse(yaml.safe_load(profiles.compose(name, root))) for name in names
    }
    reach = comparison.reach(published, chosen)
    page = comparison_page.page(numbers, published, "sample", reach, complete=False)
    written = (root / looking.PUBLISHED_REPRODUCTION).read_text(encoding="utf-8").splitlines()
    lines = [line for line in page.splitlines() if "Held against a run" not in line]
    assert [line for line in lines if line not in written] == [], (
        "`longtail reproduce --docs` writes the page again"
    )
    table = (root / looking.PUBLISHED_NUMBERS).read_text(encoding="utf-8")
    assert of_any_run(table) == of_any_run(comparison_page.numbers_csv(numbers, reach))


def of_any_run(table: str) -> list[dict[str, str]]:
    """The rows without the cells that are of a run: ours, here and the verdict."""
    rows = list(csv.DictReader(table.splitlines()))
    for row in rows:
        for column in ("ours", "here", "verdict"):
            del row[column]
    return rows
