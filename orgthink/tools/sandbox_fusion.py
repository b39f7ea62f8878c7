"""Programs run by a SandboxFusion server (`POST /run_code`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel

from orgthink.record.episode import Status
from orgthink.runtime.agent import Result
from orgthink.tools.per_loop import PerLoop
from orgthink.tools.python import ending, unindented
from orgthink.util.errors import ToolError, UserError
from orgthink.util.http import HttpClient, RetryPolicy, TooLarge, server_url
from orgthink.util.redaction import redact_foreign
from orgthink.util.terminal import excerpt

LARGEST = 1 << 20
"""Bytes of an answer that are read, at least; beyond, the program has printed too much."""


class _Run(BaseModel):
    """How the program went."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Answer(BaseModel):
    """What the server says of a call."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    run_result: _Run | None = None


@dataclass(frozen=True, slots=True)
class SandboxFusion:
    """A server that runs programs. It keeps its own walls; what is asked for here are its limits."""

    url: str
    """Up to `/run_code`."""
    seconds: float = 5.0
    """Wall clock of a program."""
    memory_mb: int = 256
    """MiB of memory of a program."""
    output_bytes: int = 64 * 1024
    """Bytes of output that are kept."""
    grace: float = 10.0
    """Seconds on top for an attempt: the way there and back, and the server's queue."""
    max_parallel: int = 64
    """Requests that an event loop makes at once; others wait."""
    patience: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=3))
    """With a server that is busy or does not answer."""
    _servers: PerLoop[HttpClient] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            server_url(self.url)
        except ValueError as error:
            raise UserError(f"not the URL of a SandboxFusion server: {error}") from error
        object.__setattr__(self, "_servers", PerLoop(self._server))

    async def run(self, code: str, stdin: str = "") -> Result:
        """Run it on that input. A server that stays silent is a TIMEOUT; one that cannot run programs, a ToolError."""
        body = {
            "code": _text(unindented(code)),
            "language": "python",
            "stdin": _text(stdin),
            "run_timeout": self.seconds,
            "memory_limit_MB": self.memory_mb,
            "files": {},
            "fetch_files": [],
        }
        server, seconds = await self._servers.get(), self.seconds + self.grace
        largest = max(LARGEST, 6 * self.output_bytes)  # JSON may write \u0000 for a byte
        try:
            reply = await server.request("POST", "run_code", body, seconds=seconds, most_bytes=largest)
        except TimeoutError:
            return Result("", Status.TIMEOUT, error=f"no answer in {seconds:g} s")
        except TooLarge:
            return Result("", Status.ERROR, error=f"answer of more than {largest} bytes: not read")
        if reply.status != 200:
            raise server.refused(reply)
        return self._result(reply.body, server.name)

    def _result(self, answer: bytes, server: str) -> Result:
        try:
            reply = _Answer.model_validate_json(
                _text(json.dumps(redact_foreign(json.loads(answer)), ensure_ascii=False))
            )
        except (ValueError, RecursionError) as error:
            found = excerpt(answer.decode(errors="replace"), 100)
            raise ToolError(f"{server}: not the answer of a SandboxFusion server: {found}") from error
        ran = reply.run_result
        if reply.status == "SandboxError" or ran is None:
            raise ToolError(f"{server}: {excerpt(reply.message or reply.status)}")
        output = (ran.stdout or "") + (ran.stderr or "")
        text = output.encode()[: self.output_bytes].decode(errors="replace")
        if ran.status == "TimeLimitExceeded":
            return Result(text, Status.TIMEOUT, error=f"stopped after {self.seconds:g} s")
        if text != output:
            return Result(text, Status.ERROR, error=f"cut after {self.output_bytes} bytes of output")
        if reply.status == "Success":
            return Result(text)
        return Result(text, Status.ERROR, error=ending(ran.return_code, text))

    def _server(self) -> HttpClient:
        patience = replace(self.patience, read=float("inf"))  # an attempt as a whole has its seconds
        url = server_url(self.url)
        return HttpClient(url, failure=ToolError, what="sandbox", retry_policy=patience, requests=self.max_parallel)


def _text(text: str) -> str:
    """With a question mark for every half character, which no UTF-8 can carry."""
    return text.encode(errors="replace").decode()
