"""Compose params.yaml from a profile of conf/, and set its month for a scheduled rebuild.

Hydra composes it: the same bytes that `dvc exp run -S profile=NAME` writes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from pipelines import params_file, shards
from pipelines.errors import LongtailError

FOLDER = Path("conf/profile")


def names(root: Path = Path()) -> list[str]:
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))


def compose(name: str, root: Path = Path()) -> str:
    """The text of params.yaml for a profile, checked.

    Raises LongtailError where there is no such profile, it is not YAML, or params.py does not allow it.
    """
    if name not in names(root):
        raise LongtailError(f"no profile {name!r} in {FOLDER}; there are: {', '.join(names(root))}")
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    file = FOLDER / f"{name}.yaml"
    try:
        with initialize_config_dir(str((root / "conf").resolve()), version_base=None):
            config = hydra_compose("config", overrides=[f"profile={name}"])
        OmegaConf.resolve(config)
    except (yaml.YAMLError, UnicodeDecodeError, HydraException, OmegaConfBaseException) as error:
        raise LongtailError(f"{file} on conf/config.yaml: {' '.join(str(error).split())}") from None
    values = OmegaConf.to_object(config)
    if values.get("profile") != name:
        raise LongtailError(f"{file}: expected `# @package _global_` as its first line, then `profile: {name}`")
    params_file.parse(values, f"{file} on conf/config.yaml")
    return OmegaConf.to_yaml(config)


def write(name: str, path: Path) -> None:
    """Compose a profile into the file `path`. A file that has this text already is not touched."""
    text = compose(name)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with shards.atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def set_month(month: str, path: Path) -> str:
    """Set the month of the page views in params.yaml: YYYY-MM, or `last` for the last that is over; returns a message.

    It stands in `popularity.month`, in the sample world's section, and in the addresses and globs of
    `fetch.files.pageviews`. All other text stays, comments included. Raises LongtailError on a month that is not over.
    """
    over = f"{datetime.now(UTC).replace(day=1) - timedelta(days=1):%Y-%m}"
    new = over if month == "last" else month
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", new) or new > over:
        raise LongtailError(f"month {month}: expected YYYY-MM up to {over}, or last")
    settings = params_file.load("popularity", "world", "fetch", path=path)
    text = path.read_text(encoding="utf-8")
    old = settings.popularity.month
    text = re.sub(rf"(?m)^(\s+month:\s*)(['\"]?){old}\2(?=\s|$)", rf"\g<1>\g<2>{new}\g<2>", text)
    for entry in settings.fetch.files.get("pageviews", []):
        moved = entry.replace(old, new).replace(old.replace("-", ""), new.replace("-", ""))
        text = text.replace(entry, moved.replace(f"/{old[:4]}/{new}", f"/{new[:4]}/{new}"))
    parsed = params_file.parse(yaml.safe_load(text))
    if parsed.popularity.month != new:
        raise LongtailError(f"{path}: popularity.month is not on a line of its own, expected `month: {old}`")
    if new == old:
        return f"popularity.month is {new} already"
    with shards.atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return f"popularity.month was {old}, and is {new} from now on"
