"""Becomes a command that is ended when it writes too long a line: `python line_limit.py BYTES COMMAS COMMAND…`.

Who reads lines from a program has to hold a line until it ends, and to parse it. A file of its own, so that it starts
at once.
"""

from __future__ import annotations

import os
import signal
import sys


def main(limit: int, commas: int, command: list[str]) -> int:
    """127 if the command cannot be started; otherwise this process is the command, and a child passes its lines on."""
    lines, stdout = os.pipe()
    if os.fork() == 0:
        os.close(stdout)
        pass_on(lines, limit, commas)
        os._exit(0)
    os.dup2(stdout, 1)
    os.closerange(3, max(lines, stdout) + 1)
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return 127


def pass_on(lines: int, limit: int, commas: int) -> None:
    """Copy the lines to stdout. One that is too long ends the process group."""
    with open(lines, "rb") as read:
        while line := read.readline(limit):
            if (len(line) == limit and not line.endswith(b"\n")) or line.count(b",") > commas:
                print(f"a message of more than {limit:,} bytes or {commas:,} parts", file=sys.stderr, flush=True)
                os.killpg(0, signal.SIGKILL)
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
