"""params.yaml, read and checked here and nowhere else: what is wrong with it, in one line."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from pipelines.errors import LongtailError
from pipelines.params.params import Params
from pipelines.params.params_rules import broken_rules


def parse(values: dict, file: str = "params.yaml") -> Params:
    """Check all values of `file`; the first fault, an unknown key first, is a LongtailError with what is allowed."""
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        key = ".".join(map(str, fault["loc"])) or "(top level)"
        said = fault["msg"].replace("Value error, ", "")  # pydantic's word for an error of our own validators
        value, problem = fault["input"], f"{said[0].lower()}{said[1:]}"
        if fault["type"] == "extra_forbidden":
            allowed = ", ".join(reduce(_model_of, fault["loc"][:-1], Params).model_fields)
            raise LongtailError(f"{file}: unknown key {key}; allowed here: {allowed}") from None
        raise _wrong(file, key, value, problem) from None
    for key, problem in broken_rules(params):
        raise _wrong(file, key, value_at(values, key), problem)
    return params


def value_at(values: Any, key: str) -> Any:
    """The value of a dotted key, as thresholds.pairs.0.tail; None where there is none."""
    for name in key.split("."):
        if isinstance(values, list):
            values = values[int(name)]
        else:
            values = values.get(name) if isinstance(values, dict) else None
    return values


def _wrong(file: str, key: str, value: object, problem: str) -> LongtailError:
    shown = re.sub(r"\?[^\s']*", "?...", repr(value))
    found = "" if isinstance(value, dict) else f" is {shown}"  # a section is too long for a line
    return LongtailError(f"{file}: {key}{found}: {problem}")


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The section class behind a field, through `X | None`, `list[X]` and `dict[str, X]` with its keys."""
    pending = [model.model_fields[name].annotation] if name in model.model_fields else []
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        pending += get_args(kind)
    return model


def load_params(*sections: str, path: str | Path = "params.yaml") -> SimpleNamespace:
    """Only these sections of params.yaml, all of which is checked; raises LongtailError with one line."""
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
        raise LongtailError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise LongtailError(f"{path}: expected a mapping of sections, found {type(values).__name__}")
    return values
