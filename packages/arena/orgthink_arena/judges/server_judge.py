"""The judge at a SandboxFusion server."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from orgthink.record.episode import Status
from orgthink.tools.sandbox_fusion import SandboxFusion
from orgthink_arena.judges import harness
from orgthink_arena.tasks.judge import Judge, JudgedOutput, JudgeLimits, Submission, up_to_failure

HARNESS = inspect.getsource(harness)
"""What is sent before each program."""


def at_server(url: str, limits: JudgeLimits) -> Judge:
    """UserError if it is no URL."""
    output = limits.output_mb << 20
    return ServerJudge(SandboxFusion(url, seconds=limits.seconds, memory_mb=limits.memory_mb, output_bytes=output))


@dataclass(frozen=True, slots=True)
class ServerJudge:
    """A SandboxFusion server, which is sent the program once for each test."""

    server: SandboxFusion
    """With the limits of a test."""

    @contextmanager
    def outputs(self, program: Submission, inputs: Sequence[str]) -> Generator[Iterator[JudgedOutput]]:
        with asyncio.Runner() as loop:
            yield up_to_failure(loop.run(self._output(program, text)) for text in inputs)

    async def _output(self, program: Submission, text: str) -> JudgedOutput:
        mark = secrets.token_hex(16)
        code = f"{HARNESS}\nalone({program.source!r}, {program.function!r}, {mark!r})\n"
        result = await self.server.run(code, text)
        printed = result.text if program.function is None else result.text.rpartition(mark)[2].rstrip("\n")
        return JudgedOutput(printed, None if result.status is Status.OK else result.error)
