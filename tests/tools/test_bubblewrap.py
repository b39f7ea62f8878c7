"""What a sandbox promises to those who use it. What it withstands is in `attacks/test_sandbox.py`."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import Status
from orgthink.tools import bubblewrap, limits
from orgthink.tools import bubblewrap as room
from orgthink.tools.bubblewrap import SandboxLimits
from orgthink.tools.python import ending, python_tool, unindented
from orgthink.tools.sandbox import Bubblewrap, runner_named
from orgthink.tools.sandbox_fusion import SandboxFusion
from orgthink.tools.toolbox import Suite, resources
from orgthink.util.errors import Failure, UserError


async def test_no_more_than_so_many_at_once():
    runner = replace(Bubblewrap(seconds=30.0), max_parallel=2)
    elders = set(limits.children(os.getpid()))  # of other tests, such as a pool of workers
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(set(limits.children(os.getpid())) - elders))
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


@pytest.mark.parametrize("stdin", ["", "7\n8", "é\r\n\0", "x" * 3_000_000])
async def test_standard_input(stdin):
    code = "import sys\ntext = sys.stdin.buffer.read().decode()\nprint(len(text), ascii(text[-9:]))"
    result = await Bubblewrap(seconds=30.0).run(code, stdin)
    assert (result.text, result.error) == (f"{len(stdin)} {stdin[-9:]!a}\n", None)


async def test_standard_input_cannot_be_changed():
    code = """
        import os
        for attempt in (lambda: os.write(0, b"x"), lambda: os.ftruncate(0, 1 << 30), lambda: open("/dev/fd/0", "w")):
            try: attempt()
            except OSError as error: print(type(error).__name__)
        """
    result = await Bubblewrap(seconds=30.0).run(code, "7\n")
    assert result.text == "OSError\nOSError\nFileNotFoundError\n"


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


async def test_numpy_and_sympy_work_by_default():
    code = """
        import numpy, sympy
        print(round(numpy.linalg.det(numpy.eye(300) * 1.01)), sympy.factorint(360))
        """
    result = await Bubblewrap().run(code)
    assert (result.text, result.status) == ("20 {2: 3, 3: 2, 5: 1}\n", Status.OK), result


async def test_only_named_packages_are_there_and_nothing_changes_them():
    code = """
        import os, subprocess, sys
        print(sorted(name for name in os.listdir("/python/packages") if "." not in name))
        for name in ("numpy", "orgthink", "pydantic", "pytest"):
            try: __import__(name)
            except ModuleNotFoundError as error: print(error)
        for path in ("/python/packages/x", "/python/packages/sympy/x"):
            try: open(path, "w")
            except OSError as error: print(error.strerror)
        """
    result = await Bubblewrap(packages=("sympy", "nothing-of-this-name")).run(code)
    missing = [f"No module named '{name}'" for name in ("numpy", "orgthink", "pydantic", "pytest")]
    assert result.text.splitlines() == ["['mpmath', 'sympy']", *missing, *["Read-only file system"] * 2]


def test_models_are_told_which_packages_there_are():
    limits = SandboxLimits(packages=("numpy", "sympy", "nothing-of-this-name"))
    here, there = Suite(limits=limits), Suite("http://127.0.0.1:8080", limits=limits)
    told = "Installed packages: numpy, sympy. Not installed: nothing-of-this-name."
    assert here.packages == told
    assert there.packages == "Installed packages: numpy, sympy, nothing-of-this-name."
    assert replace(here, limits=SandboxLimits(packages=())).packages == "Installed packages: none."
    tool, _ = resources(here, ("python",))
    assert tool.description.endswith(f"to go on from there. {told}")


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"seconds": 0}, "seconds is 0.0: it must be a number above 0"),
        ({"memory_mb": 0}, "memory_mb is 0: it must be at least 1"),
        ({"package": []}, "has no 'package': did you mean packages?"),
    ],
)
def test_limits_of_the_suite_are_checked(limits, says):
    with pytest.raises(UserError, match=says):
        OrganizationSpec("paramanager", {"suite": {"limits": limits}}).named("mine")


async def test_the_tool():
    tool = python_tool(Bubblewrap(seconds=30.0))
    assert (tool.name, tool.cost) == ("python", 0)
    assert tool.parameters.check({"code": "print(1)"}) == {"code": "print(1)"}
    assert "print" in tool.description


def test_runners_by_name():
    limits = SandboxLimits(9.0, 90, packages=())
    found = runner_named("bubblewrap", limits)
    assert isinstance(found, Bubblewrap) and (found.seconds, found.memory_mb, found.packages) == (9.0, 90, ())
    assert isinstance(runner_named("http://127.0.0.1:8080", limits), SandboxFusion)
    for name in ("docker", "", "127.0.0.1:8080", "http://", "http://[::", "bubblewrap "):
        with pytest.raises(UserError) as raised:
            runner_named(name, SandboxLimits())
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
        runner_named("bubblewrap", SandboxLimits())
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
    step, only_there = 8, 2 * 4  # inotify_init, utime, utimes and futimesat are calls of x86-64 only
    assert len(bubblewrap.filter_program("x86_64")) == len(bubblewrap.filter_program("aarch64")) + step * only_there
    with pytest.raises(UserError, match="SandboxFusion"):
        bubblewrap.filter_program("vax")
