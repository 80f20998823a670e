"""Compose params.yaml from a profile of conf/ by Hydra: the bytes that `dvc exp run -S profile=NAME` writes."""

from pathlib import Path

import yaml

from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage.atomic import atomic

FOLDER = Path("conf/profile")


def names(root: Path = Path()) -> list[str]:
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))


def compose(name: str, root: Path = Path()) -> str:
    """The text of params.yaml for a profile; LongtailError where there is none, or params.py does not allow it."""
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
        raise LongtailError(
            f"{file}: expected `# @package _global_` as its first line, then `profile: {name}`"
        )
    params_file.parse(values, f"{file} on conf/config.yaml")
    return OmegaConf.to_yaml(config)


def write_profile(name: str, path: Path) -> None:
    """Compose a profile into the file `path`. A file that has this text already is not touched."""
    text = compose(name)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
