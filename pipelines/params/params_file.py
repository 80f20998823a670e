"""Reads and checks params.yaml, here and nowhere else. What is wrong is said in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from pipelines import yaml_files
from pipelines.errors import LongtailError, one_line
from pipelines.params.param_types import Section
from pipelines.params.params import Params
from pipelines.params.params_rules import RuleBroken, check_rules
from pipelines.safe_text import UNREADABLE

Settings = TypeVar("Settings", bound=Section)  # the sections that a stage, or a command, reads


def load_params(path: str | Path = "params.yaml") -> Params:
    """All of params.yaml. Raises LongtailError with one line that says what is wrong."""
    return parse(read_values(path))


def load_settings(model: type[Settings], path: str | Path = "params.yaml") -> Settings:
    """The sections of params.yaml that are fields of `model`; all of the file is checked.

    Raises LongtailError with one line that says what is wrong.
    """
    return settings_of(load_params(path), model)


def settings_of(params: Params, model: type[Settings]) -> Settings:
    """The sections of `params` that are fields of `model`."""
    sections = {name: getattr(params, name) for name in model.model_fields}
    return model(**sections)


def read_values(path: str | Path = "params.yaml") -> dict:
    """The values of params.yaml, unchecked. Raises LongtailError on a missing file, bad YAML, or no
    mapping.
    """
    path = Path(path)
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; `longtail init --profile sample` writes one")

    try:
        values = yaml_files.read(path)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = one_line(error)
        raise LongtailError(f"{path}: not YAML ({problem})") from None

    if not isinstance(values, dict):
        raise LongtailError(
            f"{path}: expected a mapping of sections, found {type(values).__name__}"
        )

    return values


def parse(values: dict, file: str = "params.yaml") -> Params:
    """Check all values of `file`, and what values may stand together.

    Raises LongtailError for the first fault: a name that is not UTF-8, then an unknown key, with
    what is allowed.
    """
    _check_names(values, file)
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        raise _fault(file, error.errors()) from None
    try:
        check_rules(params)
    except RuleBroken as error:
        raise _wrong(file, error.key, value_at(values, error.key), error.problem) from None
    return params


def _check_names(values: dict, file: str) -> None:
    """Raise LongtailError for a text that is not UTF-8, which YAML can't hold."""
    texts = json.dumps(values, ensure_ascii=False, default=str)
    name = re.search(rf'"[^"]*{UNREADABLE.pattern}[^"]*"', texts)
    if name:
        expected = "a name in UTF-8; rename that file or folder"
        raise LongtailError(f"{file}: {name[0]}: bytes that are not UTF-8, expected {expected}")


def value_at(values: Any, key: str) -> Any:
    """The value of a dotted key, as thresholds.pairs.0.below; None where there is none."""
    for name in key.split("."):
        if isinstance(values, list):
            values = values[int(name)]
        elif isinstance(values, dict):
            values = values.get(name)
        else:
            return None
    return values


def _fault(file: str, errors: Sequence[Mapping[str, Any]]) -> LongtailError:
    """The first of pydantic's errors as ours; an unknown key comes before all others."""
    unknown_keys = [error for error in errors if error["type"] == "extra_forbidden"]
    if unknown_keys:
        location = unknown_keys[0]["loc"]
        section = Params
        for name in location[:-1]:
            section = _section_of(section, name)
        allowed = ", ".join(section.model_fields)
        return LongtailError(f"{file}: unknown key {_dotted(location)}; allowed here: {allowed}")

    error = errors[0]
    # pydantic begins the errors of our own validators with "Value error"
    problem = error["msg"].replace("Value error, ", "")
    problem = problem[0].lower() + problem[1:]
    return _wrong(file, _dotted(error["loc"]) or "(top level)", error["input"], problem)


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(name) for name in location)


def _wrong(file: str, key: str, value: object, problem: str) -> LongtailError:
    if isinstance(value, dict):  # a section is too long for a line
        return LongtailError(f"{file}: {key}: {problem}")
    shown = re.sub(r"\?[^\s']*", "?...", repr(value))  # without an address's query
    return LongtailError(f"{file}: {key} is {shown}: {problem}")


def _section_of(model: type[BaseModel], name: int | str) -> type[BaseModel]:
    """The class of the section behind a field, or behind the entries of a list or mapping.

    It is `model` itself for an index or a key of these, which is no field.
    """
    if name not in model.model_fields:
        return model
    annotations = [model.model_fields[name].annotation]
    while annotations:
        annotation = annotations.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        annotations += get_args(annotation)
    return model
