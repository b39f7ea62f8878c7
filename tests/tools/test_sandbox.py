"""Programs that attack, run for real: nothing gets out, each ends in time, and the status says what happened."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from attacks import KINDS, Attack

import orgthink
from orgthink.episode import Status
from orgthink.errors import Failure, UserError
from orgthink.tools import bubblewrap as room
from orgthink.tools import processes, seccomp
from orgthink.tools.program import ending, unindented
from orgthink.tools.python import python_tool
from orgthink.tools.sandbox import Bubblewrap, runner_named
from orgthink.tools.sandbox_fusion import SandboxFusion

PROJECT = Path(orgthink.__file__).parent.parent
GRACE = 1.0
"""Seconds after its deadline within which a call has ended."""
AT_ONCE = 6
"""Attacks side by side: most of them wait."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What programs must not reach."""

    secret: Path
    mark: str
    stream: socket.socket
    datagrams: socket.socket
    abstract: socket.socket
    name: str

    def fill(self, code: str) -> str:
        """The program, which now knows what to look for."""
        known = {
            "HOME": str(Path.home()),
            "PROJECT": str(PROJECT),
            "SECRET": str(self.secret),
            "MARK": self.mark,
            "PORT": str(self.stream.getsockname()[1]),
            "ABSTRACT": self.name,
            "PID": str(os.getpid()),
        }
        for word, meaning in known.items():
            code = code.replace(f"@{word}@", meaning)
        return code

    def untouched(self) -> None:
        """Nobody came, nothing was written, nothing is left running."""
        for listener in (self.stream, self.datagrams, self.abstract):
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is self.datagrams else listener.accept()
        assert self.secret.read_text() == "ESCAPED: the secret"
        folders = ["/", "/tmp", "/var/tmp", "/dev/shm", "/dev", "/usr/bin", "/usr/lib", "/home", Path.home(), PROJECT]
        assert not [folder for folder in folders if (Path(folder) / self.mark).exists()]
        assert not left()


ELDERS: set[int] = set()
"""Children of this process that other tests have left to go on, such as a pool of workers."""


@pytest.fixture(scope="module", autouse=True)
def elders():
    ELDERS.update(processes.children(os.getpid()))


def children() -> list[int]:
    """Those that came since."""
    return [pid for pid in processes.children(os.getpid()) if pid not in ELDERS]


def left() -> list[int]:
    """Those of them that are alive, when nothing runs any more.

    Who was killed may take a moment to end; whoever lost its parent then waits for this process to take note of it.
    """
    for _ in range(100):
        found = [pid for pid in children() if not _ended(pid)]
        if not found:
            return []
        time.sleep(0.02)
    return found


def _ended(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """Bait: a secret, someone who listens, and this process, which adopts whatever outlives its parents."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    secret = tmp_path_factory.mktemp("outside") / "secret"
    secret.write_text("ESCAPED: the secret")
    name = f"orgthink-{uuid4().hex}"
    with (
        socket.create_server(("127.0.0.1", 0)) as stream,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as abstract,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("ORGTHINK_SECRET", "ESCAPED: the variable")
        datagrams.bind(stream.getsockname())
        abstract.bind(f"\0{name}")
        abstract.listen()
        for listener in (stream, datagrams, abstract):
            listener.setblocking(False)
        yield Outside(secret, f"mark-{uuid4().hex}", stream, datagrams, abstract, name)
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_attacks(kind: str, outside: Outside):
    """Side by side, as calls are; each is told of by its name."""
    places = asyncio.Semaphore(AT_ONCE)

    async def placed(attack: Attack) -> float:
        async with places:
            return await withstood(attack, outside)

    ends = await asyncio.gather(*map(placed, KINDS[kind]), return_exceptions=True)
    assert not {a.name: end for a, end in zip(KINDS[kind], ends, strict=True) if isinstance(end, BaseException)}
    outside.untouched()
    for attack, took in zip(KINDS[kind], ends, strict=True):
        tries = [took]
        while tries[-1] >= attack.seconds + GRACE and len(tries) < 4:  # alone: a busy machine is no failure
            tries.append(await withstood(attack, outside))
        assert tries[-1] < attack.seconds + GRACE, (attack.name, tries)


async def withstood(attack: Attack, outside: Outside) -> float:
    """Make an attack; how many seconds it took."""
    start = time.monotonic()
    result = await Bubblewrap(seconds=attack.seconds).run(outside.fill(attack.code))
    took = time.monotonic() - start
    assert result.status is attack.status, result
    assert attack.says in f"{result.text}\n{result.error}", result
    assert "ESCAPED" not in result.text, result
    assert (result.error is None) == (result.status is Status.OK)
    assert result.error is None or "\n" not in result.error
    assert len(result.text) <= 64 * 1024
    return took


def test_there_are_many_attacks():
    names = [attack.name for kind in KINDS.values() for attack in kind]
    assert len(names) == len(set(names)) >= 40


async def test_the_bait_works(outside):
    """The same programs outside of a room do reach it: else their failing would prove nothing."""
    code = outside.fill(
        """
import os, socket
print(open("@SECRET@").read(), os.environ["ORGTHINK_SECRET"], os.listdir("@PROJECT@")[:1])
socket.create_connection(("127.0.0.1", @PORT@))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", @PORT@))
socket.socket(socket.AF_UNIX).connect("\\0@ABSTRACT@")
"""
    )
    done = subprocess.run([shutil.which("python3") or "python3", "-c", code], capture_output=True, text=True)
    assert "ESCAPED: the secret ESCAPED: the variable" in done.stdout, done.stderr
    assert not done.returncode
    outside.stream.accept()[0].close()
    outside.abstract.accept()[0].close()
    assert outside.datagrams.recv(9) == b"x"


@pytest.mark.parametrize("seconds", [0.0, 0.003, 0.006, 0.01, 0.02, 0.05, 0.1, 0.4])
async def test_a_cancelled_call_leaves_nothing(seconds, outside):
    """However far the room has come."""
    code = "import os, time\nfor _ in range(4): os.fork()\nos.setsid() if os.getpid() > 1 else None\ntime.sleep(60)"
    calls = [asyncio.create_task(Bubblewrap(seconds=60).run(code)) for _ in range(3)]
    await asyncio.sleep(seconds)
    for call in calls:
        call.cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
    outside.untouched()


async def test_a_deadline_before_the_room_is_made(outside):
    start = time.monotonic()
    for seconds in (0.0, 0.002, 0.005, 0.01):
        result = await Bubblewrap(seconds=seconds).run("import time\ntime.sleep(60)")
        assert result.status is Status.TIMEOUT
        outside.untouched()
    assert time.monotonic() - start < 60, "it was not waited for"


def test_rooms_end_with_a_process_that_is_killed(outside):
    """Which can no longer see to it."""
    code = "import os, time\\nos.fork()\\nos.setsid() if os.getpid() > 1 else None\\ntime.sleep(60)"
    program = f"import asyncio; from orgthink.tools.sandbox import *; asyncio.run(Bubblewrap(60.0).run('{code}'))"
    host = subprocess.Popen([sys.executable, "-c", program])
    while (
        not sum(b"/code.py" in line and b"bwrap" not in line for line in map(_command, processes.family(host.pid))) > 1
    ):
        time.sleep(0.01)
    below = [pid for pid in processes.family(host.pid) if pid != host.pid]
    host.kill()
    host.wait()
    start = time.monotonic()
    while any(_command(pid) for pid in below) and time.monotonic() - start < 30:
        time.sleep(0.01)
    assert not [pid for pid in below if _command(pid)]
    for pid in children():  # adopted, and dead
        os.waitpid(pid, 0)
    outside.untouched()


def _command(pid: int) -> bytes:
    """Its command line; empty once it is dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_calls_leave_no_descriptors_and_no_processes(outside):
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


async def test_no_more_than_so_many_at_once():
    runner = replace(Bubblewrap(seconds=30.0), max_parallel=2)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(children()))
            await asyncio.sleep(0.002)

    watching = asyncio.create_task(watch())
    results = await asyncio.gather(*(runner.run("import time\ntime.sleep(0.05)") for _ in range(8)))
    watching.cancel()
    assert [result.status for result in results] == [Status.OK] * 8
    assert most == 2


def test_every_event_loop_has_places_of_its_own():
    runner = replace(Bubblewrap(), max_parallel=1)

    async def two() -> list[str]:
        return [result.text for result in await asyncio.gather(runner.run("print(1)"), runner.run("print(2)"))]

    assert asyncio.run(two()) == asyncio.run(two()) == ["1\n", "2\n"]
    assert not runner._places._open, "a loop that is closed is forgotten"


async def test_output_is_verbatim_and_in_order():
    code = """
        import sys
        print("one")
        print("two", file=sys.stderr, flush=True)
        sys.stdout.write("  three\\r\\n\\n")
        """
    result = await Bubblewrap(seconds=30.0).run(code)
    assert sorted(result.text.split()) == ["one", "three", "two"]
    assert result.text.endswith("  three\r\n\n")


async def test_what_was_said_before_the_deadline_comes_back():
    for seconds in (1.5, 6.0, 20.0):  # on a busy machine the room alone may take as long
        result = await Bubblewrap(seconds=seconds).run("print('before', flush=True)\nwhile True: pass")
        assert result.status is Status.TIMEOUT
        if result.text:
            break
    assert result.text == "before\n"


async def test_output_of_just_the_limit_is_whole():
    runner = replace(Bubblewrap(seconds=30.0), output_bytes=100)
    whole, cut = await asyncio.gather(runner.run("print('x' * 99)"), runner.run("print('x' * 100)"))
    assert (whole.text, whole.status) == ("x" * 99 + "\n", Status.OK)
    assert (cut.text, cut.status) == ("x" * 100, Status.ERROR)


@pytest.mark.parametrize(
    ("code", "is_run"),
    [
        ("x = 1\nprint(x)", "x = 1\nprint(x)"),
        ("  x = 1\n  print(x)", "x = 1\nprint(x)"),
        ("\n\n    if x:\n        y\n", "\n\nif x:\n    y\n"),
        ("\tx = 1\n\ty = 2", "x = 1\ny = 2"),
        (" x = 1\ny = 2", "x = 1\ny = 2"),
        ("if x:\n    y", "if x:\n    y"),
        ("", ""),
        ("   \n  ", "\n"),
    ],
)
def test_indentation_is_removed_and_lines_stay_where_they_are(code, is_run):
    assert unindented(code) == is_run


@pytest.mark.parametrize(
    ("code", "output", "said"),
    [
        (1, "", "exit code 1"),
        (3, "a\nlast word\n\n", "exit code 3 (last word)"),
        (139, "x", "ended by SIGSEGV"),
        (255, "x\ry\x85z", "exit code 255 (z)"),
        (None, "x", "ended without an exit code (x)"),
        (-11, "x", "ended by SIGSEGV"),
        (1, "x" * 999, f"exit code 1 ({'x' * 200})"),
    ],
)
def test_how_it_ended(code, output, said):
    assert ending(code, output) == said


async def test_the_tool():
    tool = python_tool(Bubblewrap(seconds=30.0))
    assert (tool.name, tool.cost) == ("python", 0)
    assert tool.parameters.check({"code": "print(1)"}) == {"code": "print(1)"}
    assert "print" in tool.description


def test_runners_by_name():
    assert isinstance(runner_named("bubblewrap"), Bubblewrap)
    assert runner_named("http://127.0.0.1:8080") == SandboxFusion("http://127.0.0.1:8080")
    for name in ("docker", "", "127.0.0.1:8080", "http://", "http://[::", "bubblewrap "):
        with pytest.raises(UserError) as raised:
            runner_named(name)
        assert "\n" not in str(raised.value)


@pytest.fixture
def unchecked():
    """The check of the machine is made again, before and after."""
    room.check.cache_clear()
    yield
    room.check.cache_clear()


def test_without_bubblewrap_nothing_runs(unchecked, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="apt-get install bubblewrap"):
        Bubblewrap()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create new namespace"),
        ("echo 'bwrap: Unknown option --disable-userns' >&2; exit 1", "0.8 or newer"),
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_where_no_room_can_be_made_nothing_runs(unchecked, monkeypatch, tmp_path, script, said):
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as raised:
        runner_named("bubblewrap")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_room_that_fails_later_is_a_failure(monkeypatch, tmp_path):
    """Not what the program did."""
    runner = Bubblewrap()
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: out of namespaces' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="did not start: bwrap: out of namespaces"):
        await runner.run("print(1)")
    fake.unlink()
    fake.mkdir()
    with pytest.raises((Failure, UserError)):
        await runner.run("print(1)")


def test_the_filter_knows_its_machines():
    assert len(seccomp.program("x86_64")) == len(seccomp.program("aarch64"))
    with pytest.raises(UserError, match="SandboxFusion"):
        seccomp.program("vax")
