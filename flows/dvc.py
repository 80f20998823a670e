"""The dvc command as it is, but that it writes dvc.lock and .dvc/tmp/rwlock whole or not at all, and dvc.lock fast.

DVC truncates these files and then writes them, dvc.lock for a tenth of a second, after every stage: a run killed in
that moment would leave half a lock, which the next `dvc repro` refuses, or takes for the state of fewer stages.
To keep comments, which a lock has none of, it reads and writes the lock in Python, for seconds after every stage while
the others wait; in C it takes a quarter of that, with the same text but that long lines stay whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dvc import rwlock
from dvc.utils.serialize import _common, _yaml
from ruamel.yaml import YAML, SafeRepresenter

LOCK = "dvc.lock"
_edit_rwlock, _parse_for_update = rwlock._edit_rwlock, _yaml.parse_yaml_for_update


def main() -> int:
    """Run `dvc` with this process's arguments; returns its exit code."""
    from dvc.cli import main as dvc

    write_whole()
    return dvc(sys.argv[1:])


def write_whole() -> None:
    """From now on, DVC within this process writes its two files whole or not at all."""
    _common._dump_data = _yaml._dump_data = _dump_whole
    _yaml.parse_yaml_for_update = _parse
    rwlock._edit_rwlock = lambda folder, fs, hardlink: _edit_rwlock(folder, _WholeFiles(fs), hardlink)


class _WholeFiles:
    """DVC's file system, on which a file opened to be written takes its place when it is closed without an error."""

    def __init__(self, fs):
        self.join, self._fs = fs.join, fs

    def open(self, path: str, mode: str = "r", encoding: str = "utf-8"):
        return _whole(Path(path)) if mode == "w" else self._fs.open(path, mode, encoding=encoding)


def _parse(text: str, path: str) -> dict:
    """In place of DVC's `parse_yaml_for_update`."""
    return (_yaml.parse_yaml if Path(path).name == LOCK else _parse_for_update)(text, path)


def _dump_whole(path, data, dumper, fs=None, **options) -> None:
    """In place of DVC's `_dump_data`: the same text, moved into place when it is complete."""
    with _whole(Path(path)) as stream:
        (_dump_lock if Path(path).name == LOCK else dumper)(data, stream, **options)


def _dump_lock(data: dict, stream: IO[str]) -> None:
    """In place of DVC's `_dump`, for data without comments."""
    yaml, text = YAML(typ="safe"), io.StringIO()
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False
    yaml.width = 1 << 20  # no line is broken: libyaml breaks other lines than DVC
    yaml.Representer = _Representer
    yaml.dump(data, text)
    stream.write(re.sub(": $", ":", text.getvalue(), flags=re.MULTILINE))  # no line of a quoted text ends so


class _Representer(SafeRepresenter):
    """Writes as DVC does: nothing for null, ordered mappings like any other, unusual texts in double quotes."""

    def nothing(self, _: None):
        return self.represent_scalar("tag:yaml.org,2002:null", "")

    def text(self, value: str):
        return self.represent_scalar("tag:yaml.org,2002:str", value, style='"' if re.search("[\n']", value) else None)


_Representer.add_representer(type(None), _Representer.nothing)
_Representer.add_representer(str, _Representer.text)
_Representer.add_representer(OrderedDict, SafeRepresenter.represent_dict)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[IO[str]]:
    folder = path.resolve().parent
    scratch = folder / ".dvc/tmp" if (folder / ".dvc/tmp").is_dir() else folder
    with tempfile.NamedTemporaryFile("w", dir=scratch, encoding="utf-8", delete=False) as stream:
        try:
            yield stream
        except BaseException:
            os.unlink(stream.name)
            raise
    os.chmod(stream.name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
    os.replace(stream.name, path)


if __name__ == "__main__":
    sys.exit(main())
