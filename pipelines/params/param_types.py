"""The base of all sections of params.yaml, and the types of their values."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pipelines import methods, redaction


class Section(BaseModel):
    """A section of params.yaml: unknown keys are errors, values are not converted and can't be
    changed.
    """

    # Deferred, pydantic builds a section's checks once, as a part of all params' checks.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), defer_build=True
    )


def _check_address(address: str) -> str:
    """An address without a password: it ends up in params.yaml, dvc.lock, MLflow and releases."""
    if "://" not in address:  # a glob of fetch.files
        return address
    parts = urlsplit(address)
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if "@" in parts.netloc or any(map(redaction.stands_before_secret, names)):
        raise ValueError(
            "should have no password or token, which files would keep; put it into ~/.netrc"
        )
    return address


def _check_template(template: str) -> str:
    if not re.fullmatch(r"[^{}]*(\{title\}[^{}]*)?\{text\}[^{}]*", template):
        raise ValueError("should have {text} once, and no other braces but {title} once before it")
    return template


Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]  # YYYY-MM
Address = Annotated[str, AfterValidator(_check_address)]
Template = Annotated[str, AfterValidator(_check_template)]  # filled by retrieval/documents.py
MethodName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]
RetrieverName = Annotated[str, AfterValidator(methods.check_name)]
LMName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]  # also a key of DVC: no dots
