"""Compose params.yaml from a profile of conf/, with Hydra."""

from pathlib import Path

import yaml

from pipelines.errors import LongtailError, one_line
from pipelines.params import params_file
from pipelines.storage.atomic import write_text

FOLDER = Path("conf/profile")
PARAMS = Path("params.yaml")


def names(root: Path = Path()) -> list[str]:
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))


def compose(name: str, root: Path = Path()) -> str:
    """The text of params.yaml for a profile.

    Raises LongtailError if there is no such profile, or params.py does not allow its values.
    """
    from omegaconf import OmegaConf

    known = names(root)
    if name not in known:
        raise LongtailError(f"no profile {name!r} in {FOLDER}; there are: {', '.join(known)}")

    file = FOLDER / f"{name}.yaml"
    config = _read_config(name, root / "conf", f"{file} on conf/config.yaml")
    values = OmegaConf.to_object(config)
    if not isinstance(values, dict) or values.get("profile") != name:
        expected = f"expected `# @package _global_` as its first line, then `profile: {name}`"
        raise LongtailError(f"{file}: {expected}")
    params_file.parse(values, f"{file} on conf/config.yaml")
    return OmegaConf.to_yaml(config)


def _read_config(name: str, folder: Path, what: str):
    """config.yaml with the changes of a profile.

    Raises LongtailError, naming `what`, if it fails.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(folder.resolve()), version_base=None):
            config = hydra_compose("config", overrides=[f"profile={name}"])
        OmegaConf.resolve(config)
    except (yaml.YAMLError, UnicodeDecodeError, HydraException, OmegaConfBaseException) as error:
        raise LongtailError(f"{what}: {one_line(error)}") from None
    return config


def write_profile(name: str) -> None:
    """Compose a profile into params.yaml, which is not touched if it has this text already."""
    text = compose(name)
    if not PARAMS.is_file() or PARAMS.read_text(encoding="utf-8") != text:
        write_text(PARAMS, text)
