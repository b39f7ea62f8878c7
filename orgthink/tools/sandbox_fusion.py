"""Programs run by a SandboxFusion server (`POST /run_code`), which has its own protection and its own packages."""

from __future__ import annotations

import re
from typing import Any

from orgthink.record.episode import Status
from orgthink.runtime.agent import Result
from orgthink.tools.bubblewrap import SandboxLimits
from orgthink.tools.json_server import JsonServer
from orgthink.tools.python import ending, unindented
from orgthink.util.errors import ToolError
from orgthink.util.http import RetryPolicy
from orgthink.util.terminal import excerpt

GRACE = 10.0
"""Seconds in addition for an attempt: the transfer and the server's queue."""
OUTPUT_BYTES = 64 * 1024
"""Bytes of output that are kept."""
PATIENCE = RetryPolicy(attempts=3, silence=float("inf"))
"""The whole attempt has a time limit of its own."""

PREAMBLE = 'import os, threading; os.environ["OMP_NUM_THREADS"] = "1"; threading.stack_size(1 << 23)'
"""Begins a program. The server gives the stack of each thread all the memory of the program, so that no second thread
fits: `import numpy`, which starts threads, fails for every limit, and so does each thread of Python."""

_FUTURE = re.compile(r"^from __future__ import (?:\([^)]*\)|[^\n(#;]+)", re.MULTILINE)
_COMPOUND = re.compile(r"@|(?:async|class|def|for|if|match|try|while|with)\b")


class SandboxFusion:
    """A server that runs programs."""

    def __init__(self, url: str, limits: SandboxLimits, retry_policy: RetryPolicy = PATIENCE) -> None:
        """Seconds and memory of the limits are sent to the server. UserError if it is not a URL."""
        self._server = JsonServer(url, "run_code", "SandboxFusion server", retry_policy)
        self._limits = limits

    async def run(self, code: str, stdin: str = "") -> Result:
        """Run the program with that input. TIMEOUT if the server stays silent, ToolError if it cannot run programs."""
        seconds, program = self._limits.seconds, with_preamble(unindented(code))
        limits = {"run_timeout": seconds, "memory_limit_MB": self._limits.memory_mb}
        body = {"code": program, "language": "python", "stdin": stdin, "files": {}, "fetch_files": []}
        try:
            return await self._server.ask(body | limits, lambda reply: _result(reply, seconds), seconds + GRACE)
        except TimeoutError:
            return Result("", Status.TIMEOUT, error=f"no answer in {seconds + GRACE:g} s")


def with_preamble(code: str) -> str:
    """The program with `PREAMBLE` in its first line, or after its imports from `__future__`.

    Lines keep their numbers, except in a program whose first line begins a block.
    """
    after = max((found.end() for found in _FUTURE.finditer(code)), default=0)
    end = "" if after else "\n" if _COMPOUND.match(code) else "; "
    return f"{code[:after]}{'; ' if after else ''}{PREAMBLE}{end}{code[after:]}"


def _result(reply: dict[str, Any], seconds: float) -> Result:
    ran = reply["run_result"]
    if reply["status"] == "SandboxError" or ran is None:
        raise ToolError(f"the SandboxFusion server says: {excerpt(reply['message'] or reply['status'])}")
    output = ((ran["stdout"] or "") + (ran["stderr"] or "")).encode(errors="replace")
    text = output[:OUTPUT_BYTES].decode(errors="replace")
    if ran["status"] == "TimeLimitExceeded":
        return Result(text, Status.TIMEOUT, error=f"stopped after {seconds:g} s")
    if len(output) > OUTPUT_BYTES:
        return Result(text, Status.ERROR, error=f"cut after {OUTPUT_BYTES} bytes of output")
    if reply["status"] == "Success":
        return Result(text)
    return Result(text, Status.ERROR, error=ending(ran["return_code"], text))
