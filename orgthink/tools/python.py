"""The tool `python` (Table 7 of ParaManager), and what every sandbox does with a program."""

from __future__ import annotations

import re
import signal
from textwrap import dedent
from typing import Protocol

from orgthink.runtime.agent import Result
from orgthink.tools.tool import FunctionTool, Tool
from orgthink.util.terminal import excerpt


class CodeRunner(Protocol):
    """Runs a Python program."""

    async def run(self, code: str, stdin: str = "") -> Result:
        """What it printed on that standard input, stdout and stderr verbatim; if it did not end well, the error says in
        a line how.

        ToolError if the program could not be run at all.
        """
        ...


def unindented(code: str) -> str:
    """The program without the indentation that all of its lines share, or its first one has alone."""
    return re.sub(r"\A((?:[ \t]*\n)*)[ \t]+", r"\1", dedent(code))


def ending(code: int | None, output: str) -> str:
    """How a program ended that did not end well: its signal or exit code, and what it said last. One line.

    Signal n is 128 + n, as shells have it, or −n, as Python does.
    """
    number = code - 128 if code is not None and code > 128 else -(code or 0)
    if number in set(signal.Signals):
        return f"ended by {signal.Signals(number).name}"
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    how = "ended without an exit code" if code is None else f"exit code {code}"
    return how + (f" ({excerpt(last, 200)})" if last else "")


def python_tool(runner: CodeRunner, seconds: float = 0.0, note: str = "") -> Tool:
    """The tool `python`, whose code runs there, for so many seconds. It costs nothing: no model works for it.

    The `note` tells models which packages there are.
    """

    async def python(code: str) -> Result:
        """Runs a Python program, alone in a sandbox, and returns what it prints and its errors, to go on from there.

        Args:
            code: The program. Only what it prints comes back.
        """
        return await runner.run(code)

    return FunctionTool(python, seconds=seconds, note=note)
