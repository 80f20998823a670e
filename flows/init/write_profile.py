"""Write a commented profile for the data sets and models that lie in a folder."""

import os
import re
from collections.abc import Iterator
from glob import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import yaml

from flows import dvc_repo, profiles
from flows.init import data_files, dumps, hub_caches, model_folders, same_records
from flows.init.choices import Choices, Contents, choose, this_machine
from flows.init.model_folders import Encoder
from flows.init.unusable_questions import why_unusable
from pipelines import catalogue, safe_text
from pipelines.errors import LongtailError
from pipelines.lm.model_files import other_weights
from pipelines.sources import corpus_layouts
from pipelines.storage.atomic import write_text

LOOKED_FOR = (
    "popQA.tsv, passages (DPR's psgs_w100.tsv or another corpus), a Wikipedia dump "
    "(*pages-articles*.xml.bz2), JSON lines with text, another data set of data/README.md, "
    "and folders of models with a config.json"
)
SAMPLE_MODEL = "The sample's small one, which knows none of your texts, tries the stages."
FILES_SHOWN = 2  # of a data set
TEMPLATE = Path(__file__).with_name("profile.yaml.j2")
NO_DATA = re.compile(r"(?i)(readme|licen[sc]e|notice|citation)\b")  # names of other files
NUMBER = re.compile(r"[0-9_]+(e-?[0-9_]+)?|nan|inf")  # names that Hydra, or YAML, reads as one


def init(folder: Path, name: str | None, *, lsr: bool = False, force: bool = False) -> list[str]:
    """Write conf/profile/<name>.yaml, by default called as the folder; returns lines for the user.

    Raises LongtailError where the folder has nothing that a run can use, or the profile is there
    and `force` is not.
    """
    if not folder.is_dir():
        raise LongtailError(f"{folder}: not a folder, expected one with {LOOKED_FOR}")
    name = _profile_name(folder, name)
    path = profiles.FOLDER / f"{name}.yaml"
    if path.exists() and not force:
        raise LongtailError(
            f"{path}: is there already; --force writes it anew, --name NAME writes another"
        )

    contents = look(folder)
    choices = choose(contents, this_machine(), lsr=lsr)
    unused = list(_unused(folder, contents, choices))
    if not choices.parts.question_sets and not choices.parts.corpora:
        problem = "nothing in it that a run can be made of"
        if unused:
            problem += f"; not used: {'; '.join(unused)}"
        raise LongtailError(f"{folder}: {problem}; looked for {LOOKED_FOR}")

    used = list(_used(folder, contents, choices))
    missing = [*_missing_models(choices), *_missing_data(contents, choices)]
    found = {"used": used, "not used": unused, "missing": missing}
    _write_checked(path, _render(folder, name, contents, choices, found))

    lines = []
    for heading, entries in found.items():
        lines += [f"{heading}: {entry}" for entry in entries]
    linked = dvc_repo.link_outputs(Path.cwd(), _size(contents, choices))
    if linked:
        lines.append(linked)
    lines.append(f"wrote {path}, which says what was chosen and why; look at it, then:")
    lines += [f"  {command}" for command in _commands(name, choices)]
    return lines


def look(folder: Path) -> Contents:
    """The data sets and models in a folder, and why the other files and folders are not used."""
    contents = Contents({}, [], [], [])
    for place, files in data_files.folders_below(folder):
        for name, reason in hub_caches.other_folders(place).items():
            if reason:
                contents.unused.append((place / name, reason))
        if data_files.is_model(place):
            _add_model(place, contents)
        else:
            for file in files:
                _add_file(file, contents)

    if any(name in contents.files for name in catalogue.names("learn")):
        _leave_out_unanswered(contents)
    for data_set, files in contents.files.items():
        used, others = same_records.choose_files(data_set, files)
        contents.files[data_set] = used
        for other in others:
            reason = f"{other.used.relative_to(folder)} is used in its place: {other.why}"
            contents.unused.append((other.file, reason))

    contents.lms.sort(key=lambda lm: (lm.parameters, lm.name))
    encoders = model_folders.pair_dpr(contents.encoders)
    for encoder in encoders[1:]:
        contents.unused.append((encoder.folder, f"{encoders[0].folder.name} is the retriever"))
    return contents._replace(encoders=encoders)


def _leave_out_unanswered(contents: Contents) -> None:
    """Take out files of questions with passages that can't be judged, where there is a corpus.

    Without a corpus the questions are PopQA's, which have answers.
    """
    for name in catalogue.names("passages"):
        answered = []
        for file in contents.files.pop(name, []):
            reason = why_unusable(file, name)
            if reason:
                contents.unused.append((file, reason))
            else:
                answered.append(file)
        if answered:
            contents.files[name] = answered


def _add_model(folder: Path, contents: Contents) -> None:
    try:
        model = model_folders.read_model_folder(folder)
    except LongtailError as error:
        contents.unused.append((folder, str(error)))
        return
    if isinstance(model, Encoder):
        contents.encoders.append(model)
    elif any(lm.name == model.name for lm in contents.lms):
        reason = f"another model is called {model.name}; rename the folder"
        contents.unused.append((folder, reason))
    else:
        contents.lms.append(model)


def _add_file(file: Path, contents: Contents) -> None:
    weights = other_weights(file.name)
    seen = data_files.Seen("", weights) if weights else data_files.recognise(file)
    if seen.data_set:
        contents.files.setdefault(seen.data_set, []).append(file)
    elif not NO_DATA.match(file.name):
        contents.unused.append((file, seen.reason))


def _profile_name(folder: Path, name: str | None) -> str:
    """The profile's name: `name`, or the folder's as params.yaml allows it."""
    if name is None:
        name = model_folders.param_name(folder.resolve().name)
        return f"data-{name}" if _yaml_reads_as_other_type(name) else name
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise LongtailError(
            f"--name {name}: expected lower-case letters, digits, hyphens and underscores"
        )
    if _yaml_reads_as_other_type(name):
        raise LongtailError(
            f"--name {name}: a number, a date, yes, no or null to YAML; try --name data-{name}"
        )
    return name


def _yaml_reads_as_other_type(name: str) -> bool:
    """Whether Hydra or YAML reads a name as something other than a text."""
    return bool(NUMBER.fullmatch(name)) or not isinstance(yaml.safe_load(name), str)


def _render(
    folder: Path, name: str, contents: Contents, choices: Choices, found: dict[str, list[str]]
) -> str:
    """The text of the profile."""
    files = {key: contents.files[key] for key in choices.data_sets}
    root, globs = _globs(folder, files)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"line": safe_text.line, "json": _json, "block": _block}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        vars(choices) | {"parts": vars(choices.parts)},
        choices=choices,
        folder=str(folder),
        name=name,
        found=found,
        root=root,
        globs=globs,
    )
    return f"{text}\n"


def _json(value: Any) -> str:
    if isinstance(value, Path):
        value = str(value)
    return safe_text.dumps(value, indent=None)


def _block(values: dict[str, Any], indent: int = 2) -> str:
    margin = " " * indent
    return "".join(f"\n{margin}{key}: {_json(value)}" for key, value in values.items())


def _write_checked(path: Path, text: str) -> None:
    """Write a profile that composes; if it does not, what was there before comes back."""
    before = path.read_bytes() if path.exists() else None
    try:
        write_text(path, text)
        profiles.compose(path.stem)
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)
        raise


def _globs(folder: Path, files: dict[str, list[Path]]) -> tuple[Path, dict[str, list[str]]]:
    """fetch.root and fetch.files."""
    folder = folder.absolute()
    targets = [file.resolve().parent for paths in files.values() for file in paths]
    root = Path(os.path.commonpath([folder.resolve(), *targets]))

    globs: dict[str, list[str]] = {}
    for key, paths in files.items():
        globs[key] = []
        for parent, group in groupby(paths, key=lambda file: file.parent):
            below = folder.resolve() / parent.absolute().relative_to(folder)
            place = Path(escape(str(below.relative_to(root))))
            for pattern in _patterns(parent, sorted(file.name for file in group)):
                globs[key].append((place / pattern).as_posix())
    return root, globs


def _patterns(folder: Path, names: list[str]) -> list[str]:
    """Globs of these files of a folder: one, if their common end tells them from all others."""
    if len(names) > 2:
        reversed_names = [name[::-1] for name in names]
        end = os.path.commonprefix(reversed_names)[::-1]  # noqa: RUF071  not of paths
        pattern = f"*{escape(end)}"
        if sorted(file.name for file in folder.glob(pattern)) == names:
            return [pattern]
    return [escape(name) for name in names]


def _used(folder: Path, contents: Contents, choices: Choices) -> Iterator[str]:
    """Lines on the data sets and models that the run uses."""
    for key in choices.data_sets:
        files = contents.files[key]
        names = ", ".join(_shown(file, folder) for file in files[:FILES_SHOWN])
        if len(files) > FILES_SHOWN:
            names += f" and {len(files) - FILES_SHOWN} more"
        data_set, _, split = key.partition("/")
        label = f"{catalogue.label(data_set)} {split}".rstrip()
        reading = ""
        if key == "wikipedia":
            reading = "; each text is an article, which is cut into documents"
            if corpus_layouts.require_layout(files[0]).passages:
                reading = "; each text is a passage"
        yield f"{label}: {names}{reading}"
    if choices.uses_lms:
        for lm in contents.lms:
            chat = "; its chat template is not used (the profile says why)" if lm.chat else ""
            yield (
                f"language model {_shown(lm.folder, folder)}: {lm.parameters / 1e6:,.0f} M "
                f"parameters, reads {lm.positions:,} tokens at once{chat}"
            )
    if choices.encoder and choices.parts.corpora:
        name = _shown(choices.encoder.folder, folder)
        yield (
            f"encoder {name}, known by its settings; longtail run "
            f"base_retriever@{choices.encoder.name} opens it"
        )


def _missing_models(choices: Choices) -> Iterator[str]:
    """Lines on the models that the run lacks."""
    if not choices.encoder and choices.parts.corpora:
        instead = SAMPLE_MODEL if choices.retrievers else "Passages are found by words (BM25)."
        yield f"an encoder (Hugging Face's layout). {instead}"
    if not choices.lms:
        instead = SAMPLE_MODEL if choices.uses_lms else "No question is asked."
        yield f"a language model (Hugging Face's layout). {instead}"


def _missing_data(contents: Contents, choices: Choices) -> Iterator[str]:
    """Lines on what of its data the run lacks: data sets by the catalogue's `without`, or parts."""
    for name, dataset in catalogue.DATASETS.items():
        is_there = name in choices.data_sets or f"{name}/test" in choices.data_sets
        if name == "wikipedia" and choices.parts.given_passages:
            continue  # passages of each question are enough
        if name == "redirects" and not choices.parts.knowledge:
            continue  # only page views are counted with them
        if dataset.without and not is_there:
            yield dataset.without

    if "mmlu/test" in choices.data_sets and "mmlu/dev" not in choices.data_sets:
        yield "MMLU's dev split: its questions are asked without demonstrations"
    if choices.parts.knowledge:
        yield from dumps.notes_on_months(contents.files["pageviews"])
        yield from dumps.notes_on_tables(contents.files.get("redirects", []))


def _unused(folder: Path, contents: Contents, choices: Choices) -> Iterator[str]:
    """Lines on the data sets, files and models that are not used, and why."""
    for key, reason in choices.set_aside.items():
        yield f"{key}: {reason}"

    # of files with the same reason the first stands for all
    by_reason: dict[tuple[str, ...], list[tuple[Path, str]]] = {}
    for path, reason in sorted(contents.unused):
        top_folder = path.parent.relative_to(folder).parts[:1] if path != folder else ()
        without_names = re.sub(r"\S+\.\w+", "", reason)
        by_reason.setdefault((*top_folder, without_names), []).append((path, reason))
    for entries in by_reason.values():
        path, reason = entries[0]
        line = f"{_shown(path, folder)}: {reason}"
        if len(entries) > 1:
            line += f" (and {len(entries) - 1} more)"
        yield line

    if not choices.parts.corpora:
        for encoder in contents.encoders[:1]:
            yield f"encoder {_shown(encoder.folder, folder)}: there are no texts for it"
    if not choices.uses_lms:
        for lm in contents.lms:
            yield f"language model {_shown(lm.folder, folder)}: there are no questions on texts"


def _commands(name: str, choices: Choices) -> list[str]:
    """What to call next."""
    answered = choices.parts.answered
    if answered and not choices.uses_lms:
        imports = f"longtail imports FILE --dataset {answered[0]} --lm NAME --method METHOD"
        return [
            f"longtail run popqa --profile {name}",
            f"{imports}   # closed_book, and one with retrieval",
            "longtail run",
        ]
    commands = [f"longtail plan --profile {name}", f"longtail run --profile {name}"]
    if not choices.uses_lms:
        commands.append("longtail search 'some words'")
    return commands


def _size(contents: Contents, choices: Choices) -> int:
    """Bytes of the data that a run uses."""
    files = [file for key in choices.data_sets for file in contents.files[key]]
    return sum(file.stat().st_size for file in files)


def _shown(path: Path, folder: Path) -> str:
    """A path below the folder, as a line may have it."""
    name = path.relative_to(folder).as_posix() if path != folder else path.name
    return safe_text.line(name)
