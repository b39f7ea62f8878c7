"""Many clients of all kinds at once, for a long time, at `orgthink serve` and `orgthink mcp`, which may open 256 files.

    python tests/attacks/siege.py --seconds 1800 --out FOLDER

Honest clients must get the right answers, however many others send rubbish, drip, leave or do not read. Memory and
files at the end are those after the first part. A line of counts is printed each minute; the exit code is 1 after a
finding.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / place) for place in (".", "engines")]

import httpx2  # noqa: E402
from attacks.besiegers import HONEST, KEY, OTHERS, Client, Gate  # noqa: E402
from attacks.misbehaving import misbehaving  # noqa: E402
from attacks.watched import Watched, adopt_orphans, orphans, temporary, unlocked  # noqa: E402
from loopback import MODEL  # noqa: E402
from terse import EXTENDED  # noqa: E402

from orgthink.record.folder import RunFolder  # noqa: E402

FILES = 256
"""Files and connections that a server may have open."""
SETTINGS = [*(f"all.{one}" for one in ("worker_context=inherit", "delivery=push", "workers=persistent"))]
SERVED = ["sequential", "all=asyncthink", "verifier-corrector"]
OPTIONS = [
    *("--model", MODEL, "--prompts", EXTENDED, "--max-tokens", "80", "--capacity", "3", "--port", "0"),
    *("--set", *SETTINGS, "verifier-corrector.passes=2", "--organizations", *SERVED),
]
WARM, PATIENCE = 0.2, 300.0
"""Share of the time after which memory and files are measured first; seconds in which every visit must end."""
GROWTH, SPARE = 48.0, 8
"""MiB and files that a server may have more at the end than after the first part."""
LOG = 200_000
"""Most bytes of a log."""


class Server:
    """A command that listens, with few files."""

    def __init__(self, name: str, upstream: str, out: Path) -> None:
        self.folder, self.log = out / name, out / f"{name}.log"
        command = [sys.executable, "-m", "orgthink", name, "--url", upstream, *OPTIONS, "--out", str(self.folder)]
        few = ["bash", "-c", f'ulimit -n {FILES}; exec "$0" "$@"', *command]
        self.process = Watched(
            few, self.log, {"ORGTHINK_API_KEY": KEY, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        )

    def url(self) -> str:
        """Where it listens."""
        while (found := re.search(r"http://127\.0\.0\.1:\d+(/mcp)?", self.log.read_text())) is None:
            if self.process.ended(0.1):
                raise SystemExit(self.log.read_text())
        return found[0]

    def size(self) -> tuple[float, int]:
        """MiB of its memory, and its files."""
        self.process.ended()
        return self.process.sizes[-1], self.process.files


class Siege:
    def __init__(self, servers: list[Server], clients: int, pause: float, seed: int) -> None:
        self.servers, self.pause = servers, pause
        self.counts: Counter[str] = Counter()
        """What was done and seen."""
        self.findings: list[str] = []
        """What should not be, a line each."""
        self.sizes: dict[str, Any] = {}
        """Memory and files of the servers: after the first part, at the end, and at most."""
        self.slowest = 0.0
        """Seconds of the slowest answer of /healthz."""
        urls = [server.url() for server in servers]
        self.gates = [Gate(urls[0], urls[1], seed * 1000 + number, self.counts) for number in range(clients)]

    async def stand(self, seconds: float) -> None:
        """All clients come again and again; at the end nothing runs for them."""
        until = time.monotonic() + seconds
        watching = asyncio.create_task(self.watch())
        await asyncio.gather(*(self.visits(gate, until) for gate in self.gates))
        watching.cancel()
        while "orgthink_running 0\n" not in (await self.gates[0].ask("GET", "/metrics")).text:
            await asyncio.sleep(0.5)
        await asyncio.gather(*(gate.client.aclose() for gate in self.gates))
        await asyncio.sleep(6)  # idle connections are closed
        self.gates = [self.again(gate) for gate in self.gates]

    def again(self, gate: Gate) -> Gate:
        """The same client with new connections."""
        found = Gate(gate.url, gate.tools, gate.rng.getrandbits(60), self.counts)
        found.asked = gate.asked
        return found

    async def visits(self, gate: Gate, until: float) -> None:
        kinds: dict[Client, int] = HONEST if gate.rng.random() < 0.5 else OTHERS
        while time.monotonic() < until:
            await asyncio.sleep(gate.rng.expovariate(1 / self.pause))
            (kind,) = gate.rng.choices([*kinds], [*kinds.values()])
            self.counts[kind.__name__] += 1
            try:
                async with asyncio.timeout(PATIENCE):
                    await kind(gate)
            except (OSError, httpx2.RequestError) as error:
                self.counts[f"{kind.__name__}: {type(error).__name__}"] += 1
                self.findings += [f"{kind.__name__}: {error!r}"] if kind in HONEST else []
            except Exception as error:
                self.findings.append(f"{kind.__name__}: {type(error).__name__} {str(error)[:600]}")

    async def watch(self) -> None:
        """Ask /healthz each second, on a connection of its own, and print the counts each minute."""
        async with httpx2.AsyncClient(base_url=self.gates[0].url, timeout=PATIENCE) as client:
            for second in range(1 << 30):
                began = time.monotonic()
                reply = await client.get("/healthz")
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.counts[f"/healthz {reply.status_code}"] += 1
                if second % 60 == 59:
                    print(json.dumps(self.report() | {"sizes": [server.size() for server in self.servers]}), flush=True)
                await asyncio.sleep(1)

    def report(self) -> dict[str, Any]:
        right = {
            "right answers": sum(len(gate.asked) for gate in self.gates),
            "slowest /healthz": round(self.slowest, 2),
        }
        return {"counts": self.counts, **right, "sizes": self.sizes, "findings": self.findings}

    def stopped(self, server: Server) -> None:
        """What a server leaves behind after SIGTERM."""
        server.process.kill(signal.SIGTERM)
        if not server.process.ended(60):
            self.findings.append(f"{server.folder.name} does not end")
            server.process.kill(signal.SIGKILL)
            server.process.ended(60)
        text = server.log.read_text(errors="replace")
        code = server.process.code
        bad = [] if code in (0, -signal.SIGTERM) else [f"exit code {code}"]
        bad += [] if len(text) < LOG else [f"a log of {len(text)} bytes"]
        bad += ["Traceback"] if "Traceback" in text or (server.folder / "crashes.log").exists() else []
        bad += [f"{file} is left" for file in temporary(server.folder)]
        bad += [] if unlocked(server.folder) else ["locked"]
        self.findings += [f"{server.folder.name}: {each}" for each in bad]
        self.counts |= {f"{server.folder.name}: exit code": code, f"{server.folder.name}: bytes of log": len(text)}

    def stored(self) -> None:
        """Each question that was answered is an episode, with its answer."""
        found: Counter[tuple[str, str | None]] = Counter()
        for server in self.servers:
            found.update((episode.problem.text, episode.answer) for episode in RunFolder.open(server.folder).episodes())
        self.counts["episodes"] = found.total()
        for question, answer in ((q, a) for gate in self.gates for q, a in gate.asked.items()):
            if found[question, answer] != 1:
                self.findings.append(f"{question}: stored {found[question, answer]} times")


async def besiege(siege: Siege, seconds: float) -> None:
    await siege.stand(WARM * seconds)
    before = [server.size() for server in siege.servers]
    await siege.stand((1 - WARM) * seconds)
    for server, (memory, files) in zip(siege.servers, before, strict=True):
        now = server.size()
        name = server.folder.name
        siege.sizes[name] = {"MiB": [memory, now[0], max(server.process.sizes)], "files": [files, now[1]]}
        if now[0] > memory + GROWTH or now[1] > files + SPARE:
            siege.findings.append(f"{name} has grown from {memory} MiB, {files} files to {now}")


@contextmanager
def served(upstream: str, out: Path) -> Iterator[list[Server]]:
    """Both servers, which do not outlive this."""
    servers = [Server(name, upstream, out) for name in ("serve", "mcp")]
    try:
        yield servers
    finally:
        for server in servers:
            server.process.kill(signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seconds", 1800), ("seed", 0), ("clients", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between two visits of a client")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # a client writes where the server has closed
    adopt_orphans()
    with misbehaving(given.seed) as (upstream, _), served(upstream, given.out) as servers:
        siege = Siege(servers, given.clients, given.pause, given.seed)
        asyncio.run(besiege(siege, given.seconds))
        for server in servers:
            siege.stopped(server)
        siege.findings += [f"a process is left: {command}" for command in orphans()]
        siege.stored()
    print(json.dumps(siege.report()), flush=True)
    return int(bool(siege.findings))


if __name__ == "__main__":
    sys.exit(main())
