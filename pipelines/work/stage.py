"""What all stages share when they run: checked params first, one-line errors, a record for MLflow, a last line."""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from threadpoolctl import threadpool_limits

from pipelines import safe_text
from pipelines.errors import LongtailError, Unreachable
from pipelines.params import params_file
from pipelines.params.params_file import Settings
from pipelines.params.params_models import Section
from pipelines.storage import disks
from pipelines.storage.atomic import SCRATCH, sweep, write_json
from pipelines.storage.work_store import WorkStore
from pipelines.work.run_log import log_stage

Metrics = Mapping[str, float | list[float]]


def arguments(doc: str, **expected: Sequence[str] | str) -> argparse.Namespace:
    """The words of the stage's command line, by name; each has its choices in `expected`, or a line of help."""
    module = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(prog=module and f"python -m {module.name}", description=doc)
    for name, choices in expected.items():
        parser.add_argument(
            name, **({"help": choices} if isinstance(choices, str) else {"choices": choices})
        )
    return parser.parse_args()


def run(
    name: str,
    settings_class: type[Settings] | tuple[str, ...],
    work: Callable[[Settings], Metrics],
    *,
    out: str,
    metrics: Path | None = None,
) -> None:
    """Check params.yaml, do `work(settings)`, log its metrics as a stage's run, and print where the result is (`out`).

    The fields of `settings_class` are the sections of params.yaml that the stage uses, the same that dvc.yaml names. A
    metric that is a list is a training curve; the others are written to the file `metrics`, if there is one. A LongtailError or a full disk ends the process with
    one line and exit code 1, a server that did not answer with os.EX_TEMPFAIL, an interruption with 130.
    """
    started = time.time()
    used = {}
    gc.set_threshold(
        100_000
    )  # loading transformers makes a million objects, all to stay: looks at them took a tenth
    try:
        settings = _load(settings_class, name)
        used = dict(settings) if isinstance(settings, Section) else vars(settings)
        compute = used.get("compute")
        threads = compute.threads if compute else 1
        os.environ["OMP_NUM_THREADS"] = str(
            threads
        )  # before torch or FAISS are imported: threads decide bytes
        threadpool_limits(threads, "blas")  # NumPy's, which may be there already
        os.environ.setdefault(
            "GOMP_SPINCOUNT", "1000000"
        )  # wait actively for some milliseconds, then sleep
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        disks.check_disks(Path(out).parent, SCRATCH)
        sweep()
        WorkStore().sweep()
        found = work(settings)
        if metrics:
            write_json(
                metrics,
                {name: value for name, value in found.items() if not isinstance(value, list)},
            )
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run again to go on", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        said = str(error) if isinstance(error, LongtailError) else disks.meaning(error)
        with suppress(OSError):  # a record is kept where there is space for one
            log_stage(
                used, {}, started, said or safe_text.message(f"{type(error).__name__}: {error}")
            )
        if said is None:
            raise
        print(f"error: {name}: {said}", file=sys.stderr)
        raise SystemExit(os.EX_TEMPFAIL if isinstance(error, Unreachable) else 1) from None
    log_stage(used, found, started)
    print(f"{name}: done, see {out}")


def _load(
    settings_class: type[Settings] | tuple[str, ...], name: str
) -> Settings | SimpleNamespace:
    """The stage's settings, with as many workers as this stage has."""
    if isinstance(settings_class, tuple):  # until each stage declares a class
        namespace = params_file.load_params(*settings_class)
        if hasattr(namespace, "compute"):
            namespace.compute = namespace.compute.of_stage(name)
        return namespace
    settings = params_file.load_settings(settings_class)
    if "compute" in settings_class.model_fields:
        return settings.model_copy(update={"compute": settings.compute.of_stage(name)})
    return settings
