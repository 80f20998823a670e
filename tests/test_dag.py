"""dvc.yaml says of every stage what its code uses, and has no stage for what a run does not
bring.
"""

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from flows import graph
from pipelines.params import params, params_file
from pipelines.work import code

ROOT = Path(__file__).resolve().parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
NOTHING = {name: [] for name in params.Parts.model_fields} | {"datastore": None}


def module_of(stage: str) -> str:
    words = STAGES[stage]["cmd"].split()
    return words[words.index("-m") + 1]


def sections_of(module: str) -> set[str]:
    """The params that a stage's module reads: the fields of its class Settings."""
    settings = import_module(module).Settings
    return set(settings.model_fields)


def followed(stage: str) -> tuple[set[str], set[str]]:
    """The keys of params.yaml and of data/code.json that DVC follows for a stage."""
    entries = STAGES[stage].get("params", [])
    fingerprints = [entry["data/code.json"] for entry in entries if isinstance(entry, dict)]
    return {entry for entry in entries if isinstance(entry, str)}, {
        key for keys in fingerprints for key in keys
    }


def test_stages_follow_params_and_their_own_code():
    """Together, where a module runs as several stages; of `compute` only what can change a
    result.
    """
    fingerprints = code.of_stages()
    for module in {module_of(stage) for stage in STAGES}:
        name = module.rpartition(".")[2]
        of_module = [stage for stage in STAGES if module_of(stage) == module]
        keys = {key for stage in of_module for key in followed(stage)[0]}
        named, used = {key.split(".")[0] for key in keys}, sections_of(module)
        # the path of a model's folder says which it is
        sections = {"lms": "lm.", "retrievers": "retriever."}
        lists = {
            name
            for name, section in sections.items()
            if any(key.startswith(section) for key in keys)
        }
        assert named | lists == used | lists, module
        assert {key for key in keys if key.startswith("compute")} in (
            set(),
            {"compute.threads", "compute.device"},
        )
        files = [file for file in code.files(module) if file.suffix == ".py"]
        imports = {
            name
            for file in files
            for name in re.findall(r"^\s*(?:import|from) (\w+)", file.read_text(), re.M)
        }
        computes = bool(imports & {"torch", "transformers", "faiss"}) and "compute" in used
        for stage in of_module:
            assert STAGES[stage].get("desc"), stage
            assert stage == "code" or (
                f"stage.{name}" in followed(stage)[1] and name in fingerprints
            ), stage
            has_workers = STAGES[stage].get("meta", {}).get("workers") in ("one", "all")
            assert has_workers == computes, stage


def test_params_that_stages_follow_are_there():
    """DVC says so only when it runs the stage.

    A key with an item in it is of a section that may be empty.
    """
    values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for stage in STAGES:
        for key in (key for key in followed(stage)[0] if "${" not in key):
            found = values
            for part in key.split("."):
                assert part in found, f"{stage} follows {key}"
                found = found[part]


def test_a_stage_of_one_data_set_follows_its_reader():
    """DVC stops at a missing input, as data/index/lsr would be in a run that tunes nothing."""
    items = {"questions": "set", "chunk": "corpus", "answer": "dataset"}
    assert [
        name for name, item in items.items() if f"dataset.${{item.{item}}}" not in followed(name)[1]
    ] == []
    kept = re.findall(r"^!/(\S+/\.gitignore)$", (ROOT / "data/.gitignore").read_text(), re.M)
    assert [name for name in kept if not (ROOT / "data" / name).is_file()] == []


@pytest.fixture
def stages_of(tmp_path, monkeypatch):
    """The stages, by name, that dvc.yaml has with changed params."""

    def read(**changes) -> dict[str, graph.Stage]:
        values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8")) | changes
        params_file.parse(values)
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
        return {stage.name: stage for stage in graph.read_graph(tmp_path)[0]}

    (tmp_path / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    Repo.init(str(tmp_path), no_scm=True).close()
    monkeypatch.chdir(tmp_path)
    return read


def test_each_language_model_has_its_stages(stages_of):
    """LSR learns from one."""
    values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    (main,) = values["lms"]
    both = {"lm": values["lm"] | {"second": values["lm"][main]}, "lms": [main, "second"]}
    stages = stages_of(**both)
    assert [stage.name for stage in stages.values() if not stage.needs] == ["code"]

    def models(stage: str) -> set[str]:
        return {name for name in stages[stage].needs if name.startswith("base_lm")}

    for name in (main, "second"):
        assert (
            models(f"score_lm@pile-{name}") == models(f"answer@popqa-{name}") == {f"base_lm@{name}"}
        )
        assert f"score_lm@pile-{name}" in stages["evaluate_lm@pile"].needs
    assert models("train_lsr@dense") == {f"base_lm@{main}"}
    needs = stages_of(**both, lsr=values["lsr"] | {"lm": "second"})["train_lsr@dense"].needs
    assert {name for name in needs if name.startswith("base_lm")} == {"base_lm@second"}


def test_the_tutorial_counts_the_stages(stages_of):
    """Its table of a run is a possible one."""
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    stages = stages_of()
    assert re.findall(r"`dvc.yaml` has (\d+) stages", text) == [str(len(STAGES))]
    assert re.findall(r"which makes (\d+)\b", text) == [str(len(stages))]
    ran, runs = (re.findall(rf"^(\S+) +{state} ", text, re.MULTILINE) for state in ("ran", "runs"))
    assert len(runs) >= 2
    assert {*ran, *runs} <= {*stages}
    (counts,) = re.findall(
        r"^(\d+) of (\d+) stages done \(\1 ran\), (\d+) wait", text, re.MULTILINE
    )
    done, all_, wait = map(int, counts)
    assert (all_, wait) == (len(stages), len(stages) - done - len(runs))
    steps = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))["lsr"]["steps"]
    ((share, at, of),) = re.findall(r"train_lsr: +(\d+)%.* (\d+)/(\d+) ", text)
    assert (int(of), int(share)) == (steps, 100 * int(at) // steps)


def test_each_retriever_has_its_stages(stages_of):
    """Another one makes none of them anew."""
    values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    alone = stages_of()
    both = {"retriever": values["retriever"] | {"e5": values["retriever"]["dense"]}}
    two = ["dense", "e5"]
    parts = values["parts"] | {"tuned": two}
    both["ways"] = ["closed_book", "dense", "dense_e5", "lsr_e5"]
    both["thresholds"] = values["thresholds"] | {"pairs": []}
    stages = stages_of(retrievers=["dense", "e5"], parts=parts, **both)

    def read(stage: str) -> set[str]:
        return {
            name
            for name in stages[stage].needs
            if name.startswith(("base_retriever", "index", "train_lsr"))
        }

    for name in ("dense", "e5"):
        assert read(f"index@pile-{name}") == {f"base_retriever@{name}"}
        indexes = {f"index@{corpus}-{name}" for corpus in values["parts"]["corpora"]}
        assert read(f"train_lsr@{name}") == {f"base_retriever@{name}"} | indexes
        assert read(f"index_lsr@pile-{name}") == {f"train_lsr@{name}"}
        assert {f"index@wikipedia-{name}", f"index_lsr@wikipedia-{name}"} <= read(
            "answer@popqa-tiny"
        )
        assert {f"index@pile-{name}", f"index_lsr@pile-{name}"} <= read("score_lm@pile-tiny")
    turned = stages_of(
        retrievers=["e5", "dense"], parts=parts, **both | {"ways": ["dense", "dense_dense", "lsr"]}
    )
    assert {name: stage.outs for name, stage in turned.items()} == {
        name: s.outs for name, s in stages.items()
    }
    assert {name: stage.outs for name, stage in alone.items()}.items() <= {
        n: s.outs for n, s in stages.items()
    }.items()


def test_predictions_alone_need_eight_stages(stages_of):
    """The Pile alone needs no questions."""
    parts = NOTHING | {"question_sets": ["popqa"], "answered": ["popqa"], "rules": ["popularity"]}
    popqa = {"source": "published", "sampling": "all", "per_relation": 1}
    popqa |= {"refresh": False, "train_share": 0.0}
    stages = stages_of(parts=parts, ways=[], lms=[], retrievers=[], popqa=popqa)
    first = ["code", "local_files", "fetch"]
    last = ["analyse", "report", "check"]
    of_answers = ["questions@popqa", "tune_thresholds@popularity"]
    assert list(stages) == first + of_answers + last
    pile = {
        "corpora": ["pile"],
        "scored": ["pile"],
        "tokenizers": ["documents"],
        "tuned": ["dense"],
    }
    values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    stages = stages_of(parts=NOTHING | pile, lsr=values["lsr"] | {"queries": "lm"})
    before = ["tokenizer", "chunk", "base_lm", "base_retriever", "index", "index_bm25"]
    after = ["train_lsr", "index_lsr", "score_lm", "evaluate_lm", "attribute"]
    assert [name.partition("@")[0] for name in stages] == first + before + after + last
    assert {
        name.partition("@")[2].partition("-")[0] for name in stages if name.startswith("index")
    } == {"pile"}


def test_the_lock_is_of_this_code_and_these_params():
    """A result that is committed was made by the code and the params beside it. `longtail run`
    writes dvc.lock.
    """
    stages = yaml.load((ROOT / "dvc.lock").read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"]
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    language = params["language"]
    code_json = {
        "stage": code.of_stages(language=language),
        "dataset": code.of_datasets(language=language),
    }

    others = []
    for stage, entry in stages.items():
        for file, now in (("data/code.json", code_json), ("params.yaml", params)):
            for key, locked in entry.get("params", {}).get(file, {}).items():
                value = now
                for name in key.split("."):
                    value = value.get(name) if isinstance(value, dict) else None
                if value != locked:
                    others.append(f"{stage}: {key}")
    assert others == [], "run `longtail run` and commit dvc.lock with the code"
