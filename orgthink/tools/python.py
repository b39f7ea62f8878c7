"""The tool that runs Python (Table 7 of ParaManager)."""

from __future__ import annotations

from orgthink.runtime.agent import Result
from orgthink.tools.program import CodeRunner
from orgthink.tools.tool import FunctionTool, Tool


def python_tool(runner: CodeRunner) -> Tool:
    """The tool `python`, whose code runs there. It costs nothing: no model works for it."""

    async def python(code: str) -> Result:
        """Runs a Python program, alone in a sandbox, and returns what it prints and its errors, to go on from there.

        Args:
            code: The program. Only what it prints comes back.
        """
        return await runner.run(code)

    return FunctionTool(python)
