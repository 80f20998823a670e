"""Run a stage: params are checked before any work, an error is one line, MLflow gets a record.

The last line says where the result is.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from pipelines import redaction, safe_text
from pipelines.errors import LongtailError, Unreachable
from pipelines.params import params_file
from pipelines.params.params_file import Settings
from pipelines.storage import disks
from pipelines.storage.atomic import SCRATCH, sweep, write_json
from pipelines.storage.work_store import UNUSED_SECONDS, WorkStore
from pipelines.work.run_log import log_stage

EXIT_INTERRUPTED = 130  # as a shell reports it

Metrics = Mapping[str, float | list[float]]


def arguments(doc: str, **expected: Sequence[str] | str) -> argparse.Namespace:
    """The words of the stage's command line, by name.

    `expected` has the choices of each word, or a line of help.
    """
    module = sys.modules["__main__"].__spec__
    program = f"python -m {module.name}" if module else None
    parser = argparse.ArgumentParser(prog=program, description=doc)
    for name, choices in expected.items():
        if isinstance(choices, str):
            parser.add_argument(name, help=choices)
        else:
            parser.add_argument(name, choices=choices)
    return parser.parse_args()


def run(
    name: str,
    settings_class: type[Settings],
    work: Callable[[Settings], Metrics],
    *,
    out: str,
    metrics: Path | None = None,
) -> None:
    """Do `work(settings)` as the stage `name`, whose result is at `out`.

    The fields of `settings_class` are the sections of params.yaml that the stage uses, the same
    that dvc.yaml names. `work` returns metrics. One that is a list is a training curve. The others
    are written to the file `metrics`, if there is one.

    A LongtailError or a full disk ends the process with one line and exit code 1, a server that did
    not answer with os.EX_TEMPFAIL, an interruption with 130.
    """
    started = time.time()
    sections: dict[str, Any] = {}
    redaction.guard()
    try:
        settings = params_file.load_settings(settings_class)
        sections = dict(settings)
        _use_threads(sections)
        disks.check_disks(Path(out).parent, SCRATCH)
        sweep()
        WorkStore().sweep(started - UNUSED_SECONDS)

        result = work(settings)
        if metrics:
            numbers = {key: value for key, value in result.items() if not isinstance(value, list)}
            write_json(metrics, numbers)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run again to go on", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED) from None
    except Exception as error:
        message = str(error) if isinstance(error, LongtailError) else disks.meaning(error)
        record = message or safe_text.message(f"{type(error).__name__}: {error}")
        with suppress(OSError):  # a record is kept where there is space for one
            log_stage(sections, {}, started, record)
        if message is None:
            raise
        print(f"error: {name}: {message}", file=sys.stderr)
        raise SystemExit(os.EX_TEMPFAIL if isinstance(error, Unreachable) else 1) from None
    log_stage(sections, result, started)
    print(f"{name}: done, see {out}")


def _use_threads(sections: Mapping[str, Any]) -> None:
    """Set how many threads libraries use: those of the section `compute`, else one."""
    compute = sections.get("compute")
    threads = compute.threads if compute else 1
    # Before torch or FAISS are imported, because their number of threads decides bytes.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    threadpool_limits(threads, "blas")  # NumPy's, which may be there already
    # Wait actively for some milliseconds, then sleep.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000000")
    # A GPU would wait for one thread that makes tokens.
    in_parallel = "true" if compute and compute.device == "cuda" else "false"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", in_parallel)
