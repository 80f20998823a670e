"""The types of params: numbers, names, addresses and templates that are checked when params.yaml is read."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pipelines import methods

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
LMName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]  # of a folder, and of a key of DVC: no dots
RetrieverName = Annotated[str, AfterValidator(methods.check_name)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


def _filled_by_a_document(template: str) -> str:
    if not re.fullmatch(r"[^{}]*(\{title\}[^{}]*)?\{text\}[^{}]*", template):
        raise ValueError("should have {text} once, and no other braces but {title} once before it")
    return template


def _without_a_secret(address: str) -> str:
    """An address, which ends up in params.yaml, dvc.lock, MLflow and releases; or a glob, in `fetch.files`."""
    if "://" in address:
        parts = urlsplit(address)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
        if "@" in parts.netloc or any(map(SECRET.search, names)):
            raise ValueError("should have no password or token, which files would keep; put it into ~/.netrc")
    return address


SECRET = re.compile(  # names in a query
    r"token|secret|passw|signature|credential|^(sig|auth|authorization)$|key(id)?$", re.IGNORECASE
)
Address = Annotated[str, AfterValidator(_without_a_secret)]
Template = Annotated[str, AfterValidator(_filled_by_a_document)]  # filled by retrieval/documents.py
