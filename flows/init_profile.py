"""`longtail init FOLDER`: write a commented profile for the data sets and models that lie in a folder."""

import os
import re
from collections.abc import Iterator
from glob import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import yaml

from flows import data_files, dvc_files, model_folders, profiles
from flows.init_choices import GIB, Contents, choose, this_machine
from flows.model_folders import Encoder, LanguageModel
from pipelines import catalogue, safe_text
from pipelines.errors import LongtailError
from pipelines.lm.model_files import other_weights
from pipelines.storage.atomic import atomic

LOOKED_FOR = (
    "popQA.tsv, passages (DPR's psgs_w100.tsv or another corpus), a Wikipedia dump (*pages-articles*.xml.bz2), JSON "
    "lines with text, another data set of data/README.md, and folders of models with a config.json"
)
LARGE = 10 * GIB  # bytes of data, from which outputs are not stored twice
TEMPLATE = Path(__file__).with_name("profile.yaml.j2")
ABOUT = re.compile(r"(?i)(readme|licen[sc]e|notice|citation)\b")  # files that are no data
NUMBER = re.compile(r"[0-9_]+(e-?[0-9_]+)?|nan|inf")  # names that Hydra, or YAML, reads as one
WITHOUT = {  # data set -> what a run lacks without it
    "popqa": "popQA.tsv: questions with the popularity of what they ask about",
    "wikipedia": "passages (as DPR's psgs_w100.tsv, or JSON lines with `id`, `text` and a `title`, which may be empty) "
    "or a Wikipedia dump, to answer questions from",
    "pile": "The Pile (.jsonl.zst with text): bits per byte with REPLUG, and attribution",
    "wikidata": "Wikidata's dump, page views and C4, all three: new questions, and EntityQuestions with popularity",
    "nq": "Natural Questions (.jsonl in a folder nq): a benchmark",
    "triviaqa": "TriviaQA (.jsonl in a folder triviaqa): a benchmark",
    "mmlu/test": "MMLU (dev/*.csv and test/*.csv): a benchmark",
    "retrieval": "questions with passages (.jsonl with ctxs): recall of the retrievers",
}
WITHOUT_REDIRECTS = (
    "Wikipedia's tables *-redirect.sql.gz (some 0.2 GB) and *-page.sql.gz (some 2 GB), of the same weeks as Wikidata's "
    "dump: page views of redirects, and of articles that were moved since"
)


def init(folder: Path, name: str | None, *, lsr: bool = False, force: bool = False) -> list[str]:
    """Write conf/profile/<name>.yaml, by default called as the folder; return what to tell the user.

    Raises LongtailError where the folder has nothing that a run can use, or the profile is there and `force` is not.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise LongtailError(f"{folder}: {what}; expected a folder with {LOOKED_FOR}")
    name = _profile_name(folder, name)
    path = profiles.FOLDER / f"{name}.yaml"
    if path.exists() and not force:
        raise LongtailError(
            f"{path}: is there already; --force writes it anew, --name NAME writes another"
        )
    contents = look(folder)
    chosen = choose(contents, this_machine(), lsr=lsr)
    parts = chosen["parts"]
    not_used = [f"{key}: {why}" for key, why in chosen["set_aside"].items()] + _unused(
        folder, contents
    )
    if not chosen["uses_lms"]:
        said = f"there are no {'questions and texts' if parts['corpora'] else 'passages'} that it could read"
        not_used += [f"language model {_shown(lm.folder, folder)}: {said}" for lm in contents.lms]
    if not parts["question_sets"] and not parts["corpora"]:
        unused = f"; not used: {'; '.join(not_used)}" if not_used else ""
        raise LongtailError(
            f"{folder}: nothing in it that a run can be made of{unused}; looked for {LOOKED_FOR}"
        )
    found = {
        "used": list(_used(folder, contents, chosen)),
        "not used": not_used,
        "missing": list(_missing(chosen)),
    }
    root, globs = _globs(folder, {key: contents.files[key] for key in chosen["data_sets"]})
    made = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"line": safe_text.line, "json": _json, "block": _block}
    template = made.from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        chosen, folder=str(folder), name=name, found=found, root=str(root), globs=globs
    )
    earlier = path.read_bytes() if path.exists() else None
    try:
        with atomic(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        profiles.compose(name)
    except BaseException:
        path.unlink(missing_ok=True) if earlier is None else path.write_bytes(earlier)
        raise
    commands = [f"longtail plan --profile {name}", f"longtail run --profile {name}"]
    if not chosen["uses_lms"]:
        commands.append("longtail search 'some words'")
    if parts["answered"] and not chosen["uses_lms"]:
        imported = (
            f"longtail imports FILE --dataset {parts['answered'][0]} --lm NAME --method METHOD"
        )
        with_retrieval = f"{imported}   # closed_book, and one with retrieval"
        commands = [f"longtail run popqa --profile {name}", with_retrieval, "longtail run"]
    lines = [f"{what}: {line}" for what, lines in found.items() for line in lines]
    size = sum(file.stat().st_size for key in chosen["data_sets"] for file in contents.files[key])
    if size >= LARGE and dvc_files.link_outputs(Path.cwd()):
        lines.append(
            "outputs will be links to .dvc/cache, read-only and stored once (.dvc/config.local: cache.type)"
        )
    lines.append(f"wrote {path}, which says what was chosen and why; look at it, then:")
    return [*lines, *(f"  {command}" for command in commands)]


def _json(value: Any) -> str:
    return safe_text.dumps(str(value) if isinstance(value, Path) else value, indent=None)


def _block(values: dict[str, Any], indent: int = 2) -> str:
    return "".join(f"\n{' ' * indent}{key}: {_json(value)}" for key, value in values.items())


def look(folder: Path) -> Contents:
    """The data sets and models in a folder, and why the other files and folders are not used."""
    files: dict[str, list[Path]] = {}
    unused: list[tuple[Path, str]] = []
    lms: list[LanguageModel] = []
    encoders: list[Encoder] = []
    for place, inside in data_files.folders_below(folder):
        if data_files.is_model(place):
            try:
                model = model_folders.read_model_folder(place)
            except LongtailError as error:
                unused.append((place, str(error)))
                continue
            if isinstance(model, Encoder):
                encoders.append(model)
            elif model.name in {lm.name for lm in lms}:
                unused.append((place, f"another model is called {model.name}; rename the folder"))
            else:
                lms.append(model)
            continue
        for file in inside:
            weights = other_weights(file.name)
            seen = data_files.Seen("", weights) if weights else data_files.recognise(file)
            if seen.data_set:
                files.setdefault(seen.data_set, []).append(file)
            elif not ABOUT.match(file.name):
                unused.append((file, seen.reason))
    for key, paths in files.items():
        files[key], others = data_files.together(key, paths)
        unused += [
            (file, f"{other.relative_to(folder)} is used in its place") for file, other in others
        ]
    encoders = model_folders.pair_dpr(encoders)
    unused += [
        (encoder.folder, f"{encoders[0].folder.name} is the retriever") for encoder in encoders[1:]
    ]
    lms.sort(key=lambda lm: (lm.parameters, lm.name))
    return Contents(files, lms, encoders, unused)


def _profile_name(folder: Path, name: str | None) -> str:
    chosen = name if name is not None else model_folders.param_name(folder.resolve().name)
    number = NUMBER.fullmatch(chosen) or not isinstance(yaml.safe_load(chosen), str)
    if name is None and number:
        chosen, number = f"data-{chosen}", None
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", chosen):
        raise LongtailError(
            f"--name {chosen}: expected lower-case letters, digits, hyphens and underscores"
        )
    if number:
        raise LongtailError(
            f"--name {chosen}: a number, a date, yes, no or null to YAML; try --name data-{chosen}"
        )
    return chosen


def _globs(folder: Path, files: dict[str, list[Path]]) -> tuple[Path, dict[str, list[str]]]:
    """fetch.root and fetch.files. Files that all names of a folder's files tell by their end share a glob."""
    folder = folder.absolute()
    targets = [file.resolve().parent for paths in files.values() for file in paths]
    root = Path(os.path.commonpath([folder.resolve(), *targets]))
    globs = {}
    for key, paths in files.items():
        globs[key] = []
        for parent, group in groupby(paths, key=lambda file: file.parent):
            names = sorted(file.name for file in group)
            below = (folder.resolve() / parent.absolute().relative_to(folder)).relative_to(root)
            shared = f"*{escape(os.path.commonprefix([name[::-1] for name in names])[::-1])}"  # noqa: RUF071  not of paths
            alike = len(names) > 2 and sorted(file.name for file in parent.glob(shared)) == names
            patterns = [shared] if alike else map(escape, names)
            globs[key] += [(Path(escape(str(below))) / pattern).as_posix() for pattern in patterns]
    return root, globs


def _used(folder: Path, contents: Contents, chosen: dict[str, Any]) -> Iterator[str]:
    for key in chosen["data_sets"]:
        files, (data_set, _, split) = contents.files[key], key.partition("/")
        names = ", ".join(
            _shown(file, folder) for file in files[:2]
        ) + f" and {len(files) - 2} more" * (len(files) > 2)
        yield f"{catalogue.label(data_set)}{f' {split}' * bool(split)}: {names}"
    for lm in contents.lms if chosen["uses_lms"] else []:
        chat = "; its chat template is not used (the profile says why)" * lm.chat
        size = f"{lm.parameters / 1e6:,.0f} M parameters, reads {lm.positions:,} tokens at once"
        yield f"language model {_shown(lm.folder, folder)}: {size}{chat}"
    if chosen["encoder"] and chosen["parts"]["corpora"]:
        yield f"encoder {_shown(chosen['encoder'].folder, folder)}"


def _missing(chosen: dict[str, Any]) -> Iterator[str]:
    if not chosen["encoder"] and chosen["parts"]["corpora"]:
        small = (
            "A small one is trained on your texts."
            if chosen["retrievers"]
            else "Passages are found by words (BM25)."
        )
        yield f"an encoder (Hugging Face's layout). {small}"
    if not chosen["lms"]:
        small = " A small one is trained on your texts, to try the stages; its answers are worth little."
        yield f"a language model (Hugging Face's layout).{small * chosen['uses_lms']}"
    there = [
        *chosen["data_sets"],
        *["wikipedia"] * chosen["given"],
    ]  # passages of each question are enough
    yield from (why for key, why in WITHOUT.items() if key not in there)
    if chosen["parts"]["knowledge"] and "redirects" not in chosen["data_sets"]:
        yield WITHOUT_REDIRECTS


def _unused(folder: Path, contents: Contents) -> list[str]:
    """A line for each file that is not used; of a folder's files with the same reason the first stands for all."""
    lines = []
    key = lambda entry: (str(entry[0].parent), re.sub(r"\S+\.\w+", "", entry[1]))  # noqa: E731
    for _, group in groupby(sorted(contents.unused, key=key), key=key):
        (place, why), *others = group
        lines.append(
            f"{_shown(place, folder)}: {why}"
            + f" (and {len(others)} more beside it)" * bool(others)
        )
    return lines


def _shown(path: Path, folder: Path) -> str:
    return safe_text.line(path.relative_to(folder).as_posix() if path != folder else path.name)
