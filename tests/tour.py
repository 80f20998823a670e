"""The notebook docs/tour.ipynb, run as a notebook program would: its cells one after the other in one namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs/tour.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
SCRIPT = """
import json, sys
import matplotlib.pyplot as plt
space = {}
for cell in json.load(sys.stdin):
    exec(compile(cell, "a cell", "exec"), space)
titles = [plt.figure(number).axes[0].get_title() for number in plt.get_fignums()]
made = {name: space[name] for name in ("of_run", "bits")} | {"totals": list(space["totals"]), "titles": titles}
print(json.dumps(made))
"""


def run(place: Path, data: Path) -> dict:
    """Run the notebook in the folder `place`, which has release/; its last results. `data` is the run's."""
    (place / "docs").mkdir()
    (place / "dvc.yaml").touch()
    (place / "data").symlink_to(data)
    cells = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        cwd=place / "docs",
        input=json.dumps(cells),
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(NOTEBOOK.parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1]) | {"said": done.stdout}
