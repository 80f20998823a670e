"""Profiles: conf/ composed by Hydra into params.yaml, the same bytes that `dvc exp run -S profile=NAME` would write."""

from __future__ import annotations

from pathlib import Path

from pipelines import params_file, shards
from pipelines.errors import LongtailError

FOLDER = Path("conf/profile")


def names(root: Path = Path()) -> list[str]:
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))


def compose(name: str, root: Path = Path()) -> str:
    """The text of params.yaml for a profile, checked.

    Raises LongtailError on a profile that is not there, or that params.py does not allow.
    """
    if name not in names(root):
        raise LongtailError(f"no profile {name!r} in {FOLDER}; there are: {', '.join(names(root))}")
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str((root / "conf").resolve()), version_base=None):
        config = hydra_compose("config", overrides=[f"profile={name}"])
    OmegaConf.resolve(config)
    params_file.parse(OmegaConf.to_object(config))
    return OmegaConf.to_yaml(config)


def write(name: str, path: Path) -> None:
    """Compose a profile into `path`, and leave a file that says the same already untouched."""
    text = compose(name)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with shards.atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
