"""Programs run by a SandboxFusion server (`POST /run_code`)."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, Literal

import httpx2
from pydantic import BaseModel

from orgthink.engines.retry import Patience, retry_after
from orgthink.episode import Status
from orgthink.errors import Failure, UserError
from orgthink.runtime.result import Result
from orgthink.tools.per_loop import PerLoop
from orgthink.tools.program import ending, unindented

LARGEST = 1 << 20
"""Bytes of an answer that are read; beyond, the program has printed too much."""


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
class _Line:
    """The connections of an event loop to the server."""

    client: httpx2.AsyncClient
    """Keeps them open while a call is under way."""
    places: asyncio.Semaphore
    """For requests at once."""


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
    at_once: int = 64
    """Requests that an event loop makes at once; others wait."""
    patience: Patience = field(default_factory=lambda: Patience(attempts=3))
    """With a server that is busy or does not answer."""
    _lines: PerLoop[_Line] = field(default_factory=PerLoop, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            url = httpx2.URL(self.url)
        except (httpx2.InvalidURL, ValueError) as error:
            raise UserError(f"not a URL: {self.url!r}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise UserError(f"not the http:// URL of a SandboxFusion server: {self.url!r}")

    async def run(self, code: str) -> Result:
        """Run it. A server that stays silent is a TIMEOUT; one that cannot run programs, a Failure."""
        body = {
            "code": _text(unindented(code)),
            "language": "python",
            "run_timeout": self.seconds,
            "memory_limit_MB": self.memory_mb,
            "files": {},
            "fetch_files": [],
        }
        async with self._lines.use(self._open, _close) as line, line.places:
            for attempt in count(1):
                asked = None
                try:
                    async with asyncio.timeout(self.seconds + self.grace):
                        status, answer, asked = await self._ask(line.client, body)
                except TimeoutError:
                    return Result("", Status.TIMEOUT, error=f"no answer in {self.seconds + self.grace:g} s")
                except httpx2.RequestError as error:
                    failure = Failure(f"{self.url}: {error or type(error).__name__}")
                else:
                    if answer is None:
                        return Result("", Status.ERROR, error=f"answer of more than {LARGEST} bytes: not read")
                    if status == 200:
                        return self._result(answer)
                    failure = Failure(f"{self.url}: HTTP {status}: {answer[:200].decode(errors='replace')}")
                    if status not in (408, 429) and status < 500:
                        raise failure
                delay = self.patience.delay(attempt, asked)
                if delay is None:
                    raise failure
                await asyncio.sleep(delay)
        raise AssertionError

    async def _ask(self, client: httpx2.AsyncClient, body: dict[str, Any]) -> tuple[int, bytes | None, float | None]:
        """Status and body of an answer, `None` for one that is too large, and the seconds to wait that it asks for."""
        answer = bytearray()
        async with client.stream("POST", f"{self.url.rstrip('/')}/run_code", json=body) as response:
            asked = retry_after(response.headers.get("retry-after"))
            async for part in response.aiter_bytes():
                answer += part
                if len(answer) > LARGEST:
                    return response.status_code, None, asked
        return response.status_code, bytes(answer), asked

    def _result(self, answer: bytes) -> Result:
        try:
            said = _Answer.model_validate_json(_text(json.dumps(json.loads(answer), ensure_ascii=False)))
        except (ValueError, RecursionError) as error:
            raise Failure(f"{self.url}: not the answer of a SandboxFusion server: {answer[:100]!r}") from error
        ran = said.run_result
        if said.status == "SandboxError" or ran is None:
            raise Failure(f"{self.url}: {said.message or said.status}")
        output = (ran.stdout or "") + (ran.stderr or "")
        text = output.encode()[: self.output_bytes].decode(errors="replace")
        if ran.status == "TimeLimitExceeded":
            return Result(text, Status.TIMEOUT, error=f"stopped after {self.seconds:g} s")
        if text != output:
            return Result(text, Status.ERROR, error=f"cut after {self.output_bytes} bytes of output")
        if said.status == "Success":
            return Result(text)
        return Result(text, Status.ERROR, error=ending(ran.return_code, text))

    def _open(self) -> _Line:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=self.at_once)
        timeout = httpx2.Timeout(None, connect=self.patience.connect)
        client = httpx2.AsyncClient(verify=_certificates(), timeout=timeout, limits=limits)
        return _Line(client, asyncio.Semaphore(self.at_once))


def _text(text: str) -> str:
    """With a question mark for every half character, which no UTF-8 can carry."""
    return text.encode(errors="replace").decode()


async def _close(line: _Line) -> None:
    await line.client.aclose()


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than many a program."""
    return httpx2.create_ssl_context()
