"""Whether a server answers with the model that it was asked for."""

import re

# The end of a model's name that says which version it is: a date, a number, a tag; or, after a
# colon, which copy of it a server has loaded.
VERSION = re.compile(
    r"[-@:](\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{2}-\d{4}|\d{8}|\d{6}|\d{4}|0\d{2}|latest|free|default"
    r"|(?<=:)\d)$"
)
UNDATED = ("", "latest", "free", "default")


def is_same_model(asked: str, served: str) -> bool:
    """Whether two names are of one model.

    Case, folders before the name and a file's ending do not count. Dates and tags count only where
    both names have them: gpt-4o is gpt-4o-2024-08-06, which is not gpt-4o-2024-05-13.
    """
    name, version = _parts(asked)
    served_name, served_version = _parts(served)
    if name != served_name:
        return False
    is_undated = version in UNDATED or served_version in UNDATED
    return is_undated or version == served_version


def _parts(name: str) -> tuple[str, str]:
    """A model's name without its version, and the version; "" if it has none."""
    last = re.split(r"[/\\]", name.strip().lower())[-1]
    last = last.removesuffix(".gguf").removesuffix("-preview")
    version = VERSION.search(last)
    if not version:
        return last, ""
    return last[: version.start()].removesuffix("-preview"), version[1]
