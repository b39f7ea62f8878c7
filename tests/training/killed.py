"""A command that kills itself in the middle of a step: weights have moved, and nothing of it is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

CODE = """
import os, signal, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
from orgthink.cli import main

left = int(sys.argv[1])

def after(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

register_optimizer_step_post_hook(after)
main(sys.argv[2:])
"""


def killed_inside(update: int, *arguments: object) -> None:
    """Run an `orgthink` command in a process of its own, which ends without warning inside an update (the first is
    1)."""
    command = [sys.executable, "-c", CODE, str(update), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
