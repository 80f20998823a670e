"""params.yaml, read and checked here and nowhere else: what is wrong with it, in one line."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import yaml
from pydantic import BaseModel, ValidationError

from pipelines.errors import LongtailError
from pipelines.params.params import Params


def parse(values: dict, file: str = "params.yaml") -> Params:
    """Check a whole params mapping; the first fault becomes a LongtailError naming key, value and what is allowed.

    An unknown key comes first: where one is misspelt, the right one is missing as well. `file` is what to mend.
    """
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        key = ".".join(map(str, fault["loc"])) or "(top level)"
        value, problem = fault["input"], f"{fault['msg'][0].lower()}{fault['msg'][1:]}"
        if fault["type"] == "extra_forbidden":
            parent = Params
            for part in fault["loc"][:-1]:
                parent = _model_of(parent, part)
            allowed = ", ".join(parent.model_fields)
            raise LongtailError(f"{file}: unknown key {key}; allowed here: {allowed}") from None
        if fault["type"] == "missing":
            raise LongtailError(f"{file}: {key} is missing") from None
        found = "" if isinstance(value, dict) else f" is {_masked(repr(value))}"  # a section is too long for a line
        raise LongtailError(f"{file}: {key}{found}: {problem}") from None


def _masked(text: str) -> str:
    """A text without the password and the query of an address in it."""
    return re.sub(r"(://)[^/\s]*@|\?[^\s']*", lambda match: f"{match[1]}...@" if match[1] else "?...", text)


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The section class behind a field, through `X | None`, `list[X]` and `dict[str, X]` with its keys."""
    if name not in model.model_fields:
        return model

    pending = [model.model_fields[name].annotation]
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        pending.extend(get_args(kind))
    return model


def load_params(*sections: str, path: str | Path = "params.yaml") -> SimpleNamespace:
    """Read and check all of params.yaml; hand back only `sections`, so that a stage can't use what it does not declare.

    Raises LongtailError with one line on a missing file, bad YAML, an unknown key, a wrong type or a bad value.
    """
    params = parse(read_values(path))
    return SimpleNamespace(**{name: getattr(params, name) for name in sections})


def read_values(path: str | Path = "params.yaml") -> dict:
    """The values of params.yaml, unchecked. Raises LongtailError on a missing file, bad YAML, or no mapping."""
    path = Path(path)
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; `longtail init --profile sample` writes one")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LongtailError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise LongtailError(f"{path}: expected a mapping of sections, found {type(values).__name__}")
    return values
