"""The dvc command as it is, but that it writes dvc.lock whole or not at all.

DVC truncates the file and then writes it for a tenth of a second, after every stage: a run killed in that moment would
leave half a lock, which the next `dvc repro` refuses, or takes for the state of fewer stages.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Run `dvc` with this process's arguments; returns its exit code."""
    from dvc.cli import main as dvc
    from dvc.utils.serialize import _common, _yaml

    _common._dump_data = _yaml._dump_data = _dump_whole
    return dvc(sys.argv[1:])


def _dump_whole(path, data, dumper, fs=None, **options) -> None:
    """In place of DVC's `_dump_data`: the same text, moved into place when it is complete."""
    text = io.StringIO()
    dumper(data, text, **options)
    folder = Path(path).resolve().parent
    scratch = folder / ".dvc/tmp" if (folder / ".dvc/tmp").is_dir() else folder
    with tempfile.NamedTemporaryFile("w", dir=scratch, encoding="utf-8", delete=False) as stream:
        stream.write(text.getvalue())
    os.chmod(stream.name, Path(path).stat().st_mode & 0o777 if Path(path).exists() else 0o644)
    os.replace(stream.name, path)


if __name__ == "__main__":
    sys.exit(main())
