"""The papers' numbers held against small runs: the rule at its edges, and what counts."""

import csv
import shutil
from dataclasses import replace

import pytest
import reproduction_reference
import yaml
from dvc.repo import Repo
from profile_values import values_of

from flows.commands import looking
from pipelines.intervals import NOTHING, Interval
from pipelines.params import params_file
from pipelines.report import comparison, comparison_page, papers
from pipelines.report.comparison import Run, plain, verdict
from pipelines.report.papers import Papers, Published
from pipelines.report.run_tables import Settings, Tables

OURS = {"table": "accuracy", "dataset": "popqa", "method": "closed_book", "metric": "substring"}
PRINTED = Published(
    paper="PopQA",
    place="section 4.2",
    what="Accuracy",
    profile="paper-popqa",
    row="GPT-2",
    column="original",
    value=35.0,
    tolerance=0.5,
    unit="%",
    ours=OURS | {"times": 100},
)


@pytest.mark.parametrize(
    ("low", "high", "bound", "expected"),
    [
        (33.0, 34.5, "", "agrees"),  # the interval ends where 35 %, rounded, begins
        (33.0, 34.49, "", "differs"),
        (35.5, 37.0, "", "agrees"),
        (35.51, 37.0, "", "differs"),
        (35.2, 35.2, "", "agrees"),  # a figure without an interval
        (20.0, 21.0, "at most", "agrees"),
        (35.5, 37.0, "at most", "agrees"),
        (35.51, 37.0, "at most", "differs"),
    ],
)
def test_a_number_agrees_where_our_interval_meets_it_as_printed(low, high, bound, expected):
    assert verdict(replace(PRINTED, bound=bound), Interval((low + high) / 2, low, high)) == expected
    edge = replace(PRINTED, value=1.33, tolerance=0.005)
    assert verdict(edge, Interval(1.34, 1.335, 1.345)) == "agrees", "it is lost to floating point"


def test_a_model_is_known_by_the_last_part_of_its_path():
    assert plain("/models/opt-1.3b/") == plain("opt-1.3B")
    assert plain("opt-1_3b") == plain("opt-1.3b"), "a name of imported answers has no dots"
    assert plain("gpt2-xl") != plain("gpt2")
    assert plain("davinci-002") != plain("text-davinci-002"), "OpenAI's later model is another"


def composed(**changes) -> dict:
    """The sample's params with two local models."""
    values = values_of("sample")
    values["lms"] = ["tiny", "big"]
    local = values["lm"]["tiny"]
    values["lm"] = {
        "tiny": local | {"path": "models/gpt2"},
        "big": local | {"path": "facebook/opt-1.3b"},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        values[section][name] = value
    return values


@pytest.fixture
def run(written):
    """A function that opens the run with changed params."""

    def opened(**changes) -> Run:
        values = composed(**changes)
        settings = Settings(**{name: values[name] for name in Settings.model_fields})
        return Run(Tables(written[0], settings), params_file.parse(values))

    return opened


def with_setups(**setups) -> Papers:
    return Papers(gone={}, setups=setups, figures=[])


def test_a_number_in_the_papers_set_up_gets_a_verdict(run):
    opened = run()
    setups = with_setups(shots={"answer.n_shots": [0, 15]}, size={"chunk.tokens": 128})
    published = replace(PRINTED, lm=["gpt2-small", "gpt2"], setup=["shots", "size"])
    (row,) = opened.tables.rows(
        "accuracy", "dataset = 'popqa' AND method = 'closed_book' AND lm = 'tiny'"
    )
    ours = row["substring"].times(100)
    assert ours.low < ours.value < ours.high
    for printed, expected in ((round(ours.value), "agrees"), (90.0, "differs")):
        figure = replace(published, value=printed)
        compared = opened.compare(figure, setups)
        assert compared == comparison.Compared(figure, ours, expected, "")


@pytest.mark.parametrize(
    ("setup", "needs"),
    [
        ({"replug.top_k": 7}, "replug.top_k 7 (here 3)"),
        ({"lsr.lm": "curie"}, "lsr.lm curie (here models/gpt2)"),
        ({"retriever.path": ["contriever", "bert"]}, "retriever.path contriever or bert (here "),
        ({"corpus.pile.test_lines": 10000}, "corpus.pile.test_lines 10000 (here None)"),
        ({"answer.n_shots": 0, "answer.passages": 4}, "answer.passages 4 (here 1)"),
    ],
)
def test_a_number_of_another_set_up_is_not_run(run, setup, needs):
    published = replace(PRINTED, lm=["gpt2"], setup=["theirs"])
    compared = run(replug__top_k=3, lsr__lm="tiny").compare(published, with_setups(theirs=setup))
    assert (compared.verdict, compared.ours) == ("not run", NOTHING)
    assert compared.needs.startswith(needs)


def test_a_number_that_no_row_of_the_run_has_is_not_run(run):
    opened = run()
    for published, needs in (
        (replace(PRINTED, lm=["gpt-neox-20b"]), "the language model gpt-neox-20b"),
        (replace(PRINTED, missing="seconds"), "seconds"),
        (
            replace(PRINTED, lm=["gpt2"], ours=OURS | {"questions": 14267}),
            "table accuracy, dataset popqa, method closed_book, metric substring, questions 14267",
        ),
    ):
        compared = opened.compare(published, with_setups())
        assert (compared.verdict, compared.needs) == ("not run", needs)


def test_each_kind_of_table_is_joined_by_name(run):
    opened = run()
    opened.tables.metrics["popqa"] = {"questions": 14_000, "file": "another"}
    gain = {"gain": {"value": 0.5, "low": 0.25, "high": 1.0}}
    by_method = {"bm25": {"exact": gain, "bins": {}}}
    opened.tables.metrics["adaptive"] = {"popqa": {"opt-1.3b": by_method}}
    questions = opened.figure({"table": "metrics", "file": "popqa", "metric": "questions"}, None)
    name = {"table": "adaptive", "dataset": "popqa", "search": "exact", "metric": "gain"}
    of_either = opened.figure(name | {"method": ["bm25", "given_bm25"]}, "opt-1.3b")
    assert of_either == Interval(0.5, 0.25, 1.0)
    assert opened.figure(name | {"method": "dense"}, "opt-1.3b") == NOTHING
    assert questions.value == 14_000


def test_how_imported_answers_were_made_is_not_asked(run):
    """What is asked are the thresholds, which they get here."""
    opened = run()
    setups = with_setups(shots={"answer.n_shots": 15}, splits={"thresholds.splits": 9})
    shots = replace(PRINTED, lm=["davinci"], setup=["shots"])
    assert opened.compare(shots, setups).verdict in ("agrees", "differs")
    local = opened.compare(replace(shots, lm=["gpt2"]), setups)
    assert local.needs == "answer.n_shots 15 (here 0)"
    splits = opened.compare(replace(shots, setup=["splits"]), setups)
    assert splits.needs.startswith("thresholds.splits 9 (here")


@pytest.fixture
def longtail(written, tmp_path, monkeypatch, call, root):
    """The command in a DVC project that has these outputs, and whose stage `analyse` follows
    answer.n_shots.
    """
    shutil.copytree(written[0], tmp_path / "data")
    shutil.copytree(root / "conf", tmp_path / "conf")
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  analyse:\n    cmd: 'true'\n    params: [answer.n_shots]\n"
    )
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(composed()))
    monkeypatch.chdir(tmp_path)
    with Repo.init(no_scm=True) as repo:
        repo.reproduce()

    def reproduce(*words, **changes) -> tuple[int, str, str]:
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(composed(**changes)))
        return call("reproduce", *words)

    return reproduce


def test_the_command_prints_the_totals_and_writes_every_number(longtail):
    code, said, _ = longtail()
    assert code == 0
    lines = said.splitlines()
    assert lines[-1].endswith(": data/reproduction/reproduction.csv")
    rows = list(csv.DictReader(looking.REPRODUCTION.read_text().splitlines()))
    not_run = sum(row["verdict"] == "not run" for row in rows)
    assert lines[0] == f"0 agrees, 0 differs, {not_run} not run"
    assert not_run == len(papers.read_papers().figures)
    needs = {row["needs"] for row in rows}
    assert "the language model opt-13b" in needs


def test_outputs_of_other_params_are_not_compared(longtail):
    code, _, error = longtail(answer__n_shots=5)
    assert code == 1
    assert "`longtail run`" in error
    assert not looking.REPRODUCTION.exists()


def test_judged_numbers_are_shown_with_both_figures(run):
    published = replace(PRINTED, lm=["gpt2"])
    compared = run().compare(published, with_setups())
    count, _, name, figures = comparison_page.lines([compared])
    assert count.endswith(", 0 not run")
    assert name == "PopQA, section 4.2. Accuracy. GPT-2: original"
    assert figures.startswith("  published 35 %; ours ")
    assert figures.endswith(compared.verdict)


def test_the_pages_in_the_repository_are_those_of_papers_yaml(root):
    for file, text in reproduction_reference.pages().items():
        written = (root / file).read_text(encoding="utf-8")
        assert written == text, "`python tests/reproduction_reference.py` writes it again"
