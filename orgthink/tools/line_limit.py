"""Kills a command whose output lines are too long, or too many: `line_limit.py BYTES COMMAND…`.

A reader of lines holds each line in memory, and parses it. A file of its own, so that it starts at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time

MOST_A_SECOND = 2_000
"""Lines."""
MOST_COMMAS = 500_000
"""Commas of a line: JSON of more values holds the event loop for seconds."""


def main(limit: int, command: list[str]) -> int:
    """127 if the command cannot be started; otherwise this process is the command, and a child passes its lines on."""
    lines, stdout = os.pipe()
    if os.fork() == 0:
        os.close(stdout)
        pass_on(lines, limit)
        os._exit(0)
    os.dup2(stdout, 1)
    os.closerange(3, max(lines, stdout) + 1)
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return 127


def pass_on(lines: int, limit: int) -> None:
    """Copy the lines to stdout. One that is too long ends the process group, and so do too many in a second."""
    began, count = time.monotonic(), 0
    with open(lines, "rb") as read:
        while line := read.readline(limit):
            if (len(line) == limit and not line.endswith(b"\n")) or line.count(b",") > MOST_COMMAS:
                end(f"a message of more than {limit:,} bytes or {MOST_COMMAS:,} commas")
            if time.monotonic() > began + 1:
                began, count = time.monotonic(), 0
            count += 1
            if count > MOST_A_SECOND:
                end(f"more than {MOST_A_SECOND:,} messages in a second")
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def end(problem: str) -> None:
    """Kill the process group, and so the command."""
    print(problem, file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
