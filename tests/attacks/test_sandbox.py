"""Programs that attack, run for real: nothing gets out, each ends in time, and the status says what happened."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.kernel_programs import ATTACKS as KERNEL
from attacks.outside import bait, children, command
from attacks.programs import ATTACKS

from orgthink.record.episode import Status
from orgthink.runtime.agent import Result
from orgthink.tools import limits
from orgthink.tools.sandbox import Bubblewrap

pytestmark = pytest.mark.thorough

GRACE = 1.0
"""Seconds after its deadline within which a call has ended."""
AT_ONCE = 6
"""Attacks side by side: most of them wait."""
NOTHING_LEFT = "When a program's call ends, however it ends, none of its processes is left."
NOBODY_WATCHES = "When orgthink is killed, every sandbox ends by itself, whatever the program did against it."


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    with bait(tmp_path_factory.mktemp("outside")) as outside:
        yield outside


async def run(attack: Attack, outside) -> tuple[Result, float]:
    """What becomes of a program, and after how many seconds."""
    start = time.monotonic()
    result = await Bubblewrap(seconds=attack.given.seconds, memory_mb=256).run(outside.fill(attack.given.code))
    return result, time.monotonic() - start


@pytest.fixture(scope="module")
def ends(request, outside) -> dict[str, tuple[Result, float] | BaseException]:
    """All programs of this run, side by side as calls are: how they ended."""
    items = [item for item in request.session.items if item.name.startswith("test_a_program[")]
    attacks = [item.callspec.params["attack"] for item in items]
    places = asyncio.Semaphore(AT_ONCE)

    async def placed(attack: Attack) -> tuple[Result, float]:
        async with places:
            return await run(attack, outside)

    async def side_by_side() -> list[tuple[Result, float] | BaseException]:
        return await asyncio.gather(*map(placed, attacks), return_exceptions=True)

    found = asyncio.run(side_by_side())
    outside.untouched()
    return dict(zip([attack.does for attack in attacks], found, strict=True))


@each(*ATTACKS, *KERNEL)
def test_a_program(attack, ends, outside):
    end = ends[attack.does]
    if isinstance(end, BaseException):
        raise end
    result, took = end
    assert result.status is attack.given.status, result
    assert attack.given.says in f"{result.text}\n{result.error}", result
    assert "ESCAPED" not in result.text, result
    assert (result.error is None) == (result.status is Status.OK)
    assert result.error is None or "\n" not in result.error
    assert len(result.text) <= 64 * 1024
    tries = [took]
    while tries[-1] >= attack.given.seconds + GRACE and len(tries) < 4:  # alone: a busy machine is no failure
        tries.append(asyncio.run(run(attack, outside))[1])
    assert tries[-1] < attack.given.seconds + GRACE, tries


@each(
    *(
        Attack(f"a call that is cancelled after {seconds} s", NOTHING_LEFT, "the call is cancelled", seconds)
        for seconds in (0.0, 0.003, 0.006, 0.01, 0.02, 0.05, 0.1, 0.4)
    )
)
async def test_a_cancelled_call(attack, outside):
    """However far the sandbox has come."""
    code = "import os, time\nfor _ in range(4): os.fork()\nos.setsid() if os.getpid() > 2 else None\ntime.sleep(60)"
    calls = [asyncio.create_task(Bubblewrap(seconds=60).run(code)) for _ in range(3)]
    await asyncio.sleep(attack.given)
    for call in calls:
        call.cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
    outside.untouched()


@each(Attack("64 programs that crash, flood, fork and hang", NOTHING_LEFT, "no file descriptor is left either"))
async def test_descriptors(attack, outside):
    runner = Bubblewrap(seconds=0.5)
    odd = ["1 / 0", "while True: print('x' * 999)", "while True: pass", "import os\nos.fork()"]

    async def runs(count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(count):
                group.create_task(runner.run(odd[n % 40] if n % 40 < len(odd) else "print(1)"))

    await runs(4)
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    await runs(60)
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before
    outside.untouched()


HOST = "import asyncio; from orgthink.tools.sandbox import *; asyncio.run(Bubblewrap(60.0).run({code!r}))"
CLEARS = "import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n"
STAYS = "import os, time\nos.fork()\nos.setsid() if os.getpid() > 2 else None\ntime.sleep(60)"
DEAF = "import signal\nfor n in signal.valid_signals() - {9, 19}: signal.signal(n, signal.SIG_IGN)\n"
ADOPTED = "import ctypes\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"


@each(
    *(
        Attack(f"{who}: orgthink is killed, and the program {does}", NOBODY_WATCHES, "no process is left", (who, code))
        for who in ("as root", "as another user")
        for does, code in {
            "forks and sleeps": STAYS,
            "clears its parent-death signal": CLEARS + STAYS,
            "ignores all signals": DEAF + STAYS,
            "adopts its orphans": ADOPTED + STAYS,
        }.items()
    )
)
def test_a_killed_host(attack, outside):
    """Which can no longer see to it."""
    who, code = attack.given
    program = HOST.format(code=code)
    run, environment = ([sys.executable, "-c", program], None) if who == "as root" else command(program)
    host = subprocess.Popen(run, env=environment)
    while sum(b"/code.py" in line and b"bwrap" not in line for line in map(_command, family(host.pid))) < 3:
        assert host.poll() is None
        time.sleep(0.01)
    below = [pid for pid in family(host.pid) if pid != host.pid]
    host.kill()
    host.wait()
    start = time.monotonic()
    while any(_command(pid) for pid in below) and time.monotonic() - start < 30:
        time.sleep(0.01)
    alive = [pid for pid in below if _command(pid)]
    for pid in alive:
        os.kill(pid, 9)
    assert not alive
    for pid in children():  # adopted, and dead
        os.waitpid(pid, 0)
    outside.untouched()


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    return [pid, *(one for child in limits.children(pid) for one in family(child))]


def _command(pid: int) -> bytes:
    """Its command line; empty once it is dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
