"""Programs run by a SandboxFusion server (`POST /run_code`), which has its own protection."""

from __future__ import annotations

from typing import Any

from orgthink.record.episode import Status
from orgthink.runtime.agent import Result
from orgthink.tools.json_server import JsonServer
from orgthink.tools.python import ending, unindented
from orgthink.util.errors import ToolError
from orgthink.util.http import RetryPolicy
from orgthink.util.terminal import excerpt

SECONDS = 5.0
"""Wall-clock limit of a program."""
GRACE = 10.0
"""Seconds in addition for an attempt: the transfer and the server's queue."""
MEMORY_MB = 256
"""MiB of memory of a program."""
OUTPUT_BYTES = 64 * 1024
"""Bytes of output that are kept."""
PATIENCE = RetryPolicy(attempts=3, read=float("inf"))
"""The whole attempt has a time limit, so that reading needs none."""


class SandboxFusion:
    """A server that runs programs."""

    def __init__(self, url: str, retry_policy: RetryPolicy = PATIENCE) -> None:
        """UserError if it is not a URL."""
        self._server = JsonServer(url, "run_code", "SandboxFusion server", retry_policy)

    async def run(self, code: str, stdin: str = "") -> Result:
        """Run the program with that input. TIMEOUT if the server stays silent, ToolError if it cannot run programs."""
        limits = {"run_timeout": SECONDS, "memory_limit_MB": MEMORY_MB}
        body = {"code": unindented(code), "language": "python", "stdin": stdin, "files": {}, "fetch_files": []}
        try:
            return await self._server.ask(body | limits, _result, SECONDS + GRACE)
        except TimeoutError:
            return Result("", Status.TIMEOUT, error=f"no answer in {SECONDS + GRACE:g} s")


def _result(reply: dict[str, Any]) -> Result:
    ran = reply["run_result"]
    if reply["status"] == "SandboxError" or ran is None:
        raise ToolError(f"the SandboxFusion server says: {excerpt(reply['message'] or reply['status'])}")
    output = ((ran["stdout"] or "") + (ran["stderr"] or "")).encode(errors="replace")
    text = output[:OUTPUT_BYTES].decode(errors="replace")
    if ran["status"] == "TimeLimitExceeded":
        return Result(text, Status.TIMEOUT, error=f"stopped after {SECONDS:g} s")
    if len(output) > OUTPUT_BYTES:
        return Result(text, Status.ERROR, error=f"cut after {OUTPUT_BYTES} bytes of output")
    if reply["status"] == "Success":
        return Result(text)
    return Result(text, Status.ERROR, error=ending(ran["return_code"], text))
