"""A copy of the files that git knows: a fresh clone of what is being tested."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def clone(folder: Path, *, umask: int = 0o22, began: int = 1_700_000_000) -> Path:
    """The new folder. Its files have the permissions of a machine with this umask, and differ by a second in time."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a clone")
    for seconds, name in enumerate(filter(None, listed.stdout.decode().split("\0"))):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
            (folder / name).chmod((0o777 if os.access(ROOT / name, os.X_OK) else 0o666) & ~umask)
            os.utime(folder / name, (began + seconds, began + seconds))
    return folder
