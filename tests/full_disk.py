"""A disk that gets full while a run is at work."""

import shutil
import subprocess
from pathlib import Path


class Disk:
    """A file system in memory, which may be full; only root may mount it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)

    def fill(self) -> None:
        """Leave some kB."""
        used = shutil.disk_usage(self.folder).used >> 10
        self._remount(f"size={used + 16}k")

    def free(self) -> None:
        self._remount("size=1g")

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)

    def _remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", self.folder], check=True)
