"""Organizations behind `orgthink serve` and the closest techniques of optillm, on one server, with the same questions.

    python -m venv .venv-optillm && .venv-optillm/bin/pip install optillm==0.4.0
    python -m benchmarks.optillm .venv-optillm/bin/optillm

Both stand as processes of their own between the same client and the same server, which counts what it is sent and what
it samples. Every technique begins with the same answers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx2
import tyro
from tyro.conf import Positional

from benchmarks.report import Line
from benchmarks.steady_server import CONTEXT, MODEL, STEP, SteadyServer

REPEATS = 3
"""Questions of each kind. The kinds alternate, and the medians count."""
CROWD = 16
"""Clients at once, in the second half."""
QUESTION = {"messages": [{"role": "user", "content": "What is six times seven?"}], "temperature": 1}
ORGANIZATIONS = {
    "majority-5": "majority-vote samples=5",
    "majority-8": "majority-vote samples=8",
    "refine": "self-refine rounds=1",
}
"""Model of `orgthink serve` → its organization, and a setting of it."""
PAIRS = {
    "majority-5": ("self_consistency", "5 answers, the most frequent"),
    "majority-8": ("majority_voting", "8 answers, the most frequent"),
    "refine": ("moa", "a draft (3 there), a critique, an answer"),
}
"""Model of `orgthink serve` → optillm's technique, and what both do."""


@dataclass(frozen=True, slots=True)
class Served:
    """What came of one question, or of several at once."""

    seconds: float
    """Until the last answer."""
    requests: int
    """That the server counted."""
    sampled: int
    """Tokens that the server counted."""
    reported: int
    """Tokens of the usage that the client was told."""


async def run(optillm: Path) -> AsyncIterator[Line]:
    server = SteadyServer()
    async with server.serving() as url, httpx2.AsyncClient(timeout=600) as client:
        with _proxies(optillm, url) as (ours, theirs):
            await asyncio.gather(*(_up(client, proxy) for proxy in (ours, theirs)))
            for model, (technique, work) in PAIRS.items():
                for clients in (1, CROWD):
                    found: dict[str, list[Served]] = {ours: [], theirs: []}
                    for _ in range(1 + REPEATS):
                        for proxy, name in ((ours, model), (theirs, f"{technique}-{MODEL}")):
                            found[proxy].append(await _served(client, server, proxy, name, clients))
                    for line in _lines(model, technique, work, clients, found[ours][1:], found[theirs][1:]):
                        yield line


def _lines(
    model: str, technique: str, work: str, clients: int, ours: list[Served], theirs: list[Served]
) -> Iterator[Line]:
    seconds = [median(one.seconds for one in found) for found in (ours, theirs)]
    crowd = "" if clients == 1 else f", {clients} clients at once"
    counts = "; ".join(
        f"{name}: {one.requests} requests, {one.sampled} tokens, {one.reported} reported"
        for name, one in (("orgthink", ours[-1]), ("optillm", theirs[-1]))
    )
    conditions = f"{work}; {seconds[0]:.3f} and {seconds[1]:.3f} s, median of {REPEATS}; {counts}"
    ratio = seconds[0] / seconds[1]
    yield Line(f"{model} ÷ optillm's {technique}, seconds{crowd}", ratio, "≤ 1", ratio <= 1, conditions)
    for name, found, goal in (("orgthink", ours, "1"), ("optillm", theirs, "none")):
        share = median(one.reported / one.sampled for one in found)
        exact = all(one.reported == one.sampled for one in found) or goal == "none"
        yield Line(
            f"{model if goal == '1' else technique}: tokens reported by {name} ÷ sampled{crowd}",
            share,
            goal,
            exact,
            counts,
        )


async def _served(client: httpx2.AsyncClient, server: SteadyServer, proxy: str, model: str, clients: int) -> Served:
    """Ask the question, by so many clients at once."""
    server.reset()
    begun = time.perf_counter()
    replies = await asyncio.gather(
        *(client.post(f"{proxy}/v1/chat/completions", json=QUESTION | {"model": model}) for _ in range(clients))
    )
    seconds = time.perf_counter() - begun
    reported = sum(reply.raise_for_status().json()["usage"]["completion_tokens"] for reply in replies)
    return Served(seconds, server.requests, server.tokens, reported)


@contextmanager
def _proxies(optillm: Path, url: str) -> Iterator[tuple[str, str]]:
    """The addresses of both, as processes that end with the context."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [_free_port() for _ in range(2)]
        own = [sys.executable, "-m", "orgthink", "serve", "--url", url, "--model", MODEL, "--port", str(ports[0])]
        own += [
            "--capacity",
            "9",
            "--streams",
            str(8 * CROWD),
            "--max-tokens",
            str(4 * CONTEXT),
            "--out",
            str(folder / "run"),
        ]
        own += ["--organizations", "sequential", *(f"{name}={how.split()[0]}" for name, how in ORGANIZATIONS.items())]
        own += ["--set", *(f"{name}.{how.split()[1]}" for name, how in ORGANIZATIONS.items())]
        other = [str(optillm), "--base-url", url, "--port", str(ports[1]), "--log", "error"]
        for command in (own, other):
            environment = os.environ | {"OPENAI_API_KEY": "none", "HOME": str(folder)}
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        yield f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return place.getsockname()[1]


async def _up(client: httpx2.AsyncClient, proxy: str) -> None:
    """Wait until it answers. RuntimeError after two minutes."""
    for _ in range(240):
        try:
            await client.get(f"{proxy}/v1/models")
            return
        except httpx2.TransportError:
            await asyncio.sleep(0.5)
    raise RuntimeError(f"{proxy} does not answer")


async def main(optillm: Positional[Path]) -> None:
    """Compare with the `optillm` of another environment."""
    print(f"{STEP * 1e3:g} ms a token whatever the number of rows, at most {CONTEXT} tokens an answer\n", flush=True)
    async for line in run(optillm):
        verdict = "met" if line.met else "missed"
        print(f"{line.name}: {line.value:.2f}  (goal {line.goal}: {verdict})\n    {line.conditions}", flush=True)


if __name__ == "__main__":
    asyncio.run(tyro.cli(main))
