"""Processes that kill themselves in the middle of a step: weights have moved, and nothing of it is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

CODE = """
import os, signal, sys
from torch.optim.optimizer import register_optimizer_step_post_hook

left = int(sys.argv[1])

def after(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

register_optimizer_step_post_hook(after)
sys.path.insert(0, sys.argv[2])
"""


def killed_inside(update: int, code: str, *arguments: object) -> None:
    """Run code in a process of its own, which ends without warning inside an update (the first is 1).

    The arguments are `sys.argv[3:]`. Modules beside this one can be imported.
    """
    command = [sys.executable, "-c", CODE + code, str(update), str(Path(__file__).parent), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr


def command_killed_inside(update: int, *arguments: object) -> None:
    """The same of an `orgthink` command."""
    killed_inside(update, "from orgthink.cli import main\nmain(sys.argv[3:])", *arguments)
