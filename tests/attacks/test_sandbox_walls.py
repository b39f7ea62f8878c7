"""What sandboxes share: with each other, with the machine, and with the packages of its Python."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import struct
import sys
import sysconfig
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.kernel_programs import KERNEL

from orgthink.record.episode import Status
from orgthink.tools import bubblewrap, limits
from orgthink.tools.sandbox import Bubblewrap

pytestmark = pytest.mark.thorough

APART = "Two programs that run side by side leave each other no message."
FREE = "A program that runs blocks nobody outside."
SEALED = "A package that is installed where Python is installed is not in a sandbox."
GROUPS = "A control group that fails or is left behind harms no run."

SENDS = {
    "a file": "open('/tmp/message', 'w').write('ESCAPED')",
    "a file of /dev/shm": "open('/dev/shm/message', 'w').write('ESCAPED')",
    "an abstract socket": "import socket\nx = socket.socket(1)\nx.bind('\\0message')\nx.listen()",
    "a socket with a name": "import socket\nx = socket.socket(1)\nx.bind('/tmp/message')\nx.listen()",
    "a named pipe": "import os\nos.mkfifo('/tmp/message')",
    "a read lock of a library": "import fcntl, os\nx = open(os.__file__)\nfcntl.lockf(x, fcntl.LOCK_SH, 7, 7)",
    "a lock of an open library": (
        "import fcntl, os, struct\nx = open(os.__file__)\nfcntl.fcntl(x, 37, struct.pack('hhqqi', 0, 0, 7, 7, 0))"
    ),
    "a lock of a device": "import fcntl\nx = open('/dev/null', 'w')\nfcntl.lockf(x, fcntl.LOCK_EX)",
    "the times of a device": "import os\ntry: os.utime('/dev/null')\nexcept OSError: pass",
    "the times of a device, called now by a number": (
        "import ctypes, os\nnow = (ctypes.c_long * 4)(0, 0x3FFFFFFF, 0, 0x3FFFFFFF)\n"
        "ctypes.CDLL(None).utimensat(-100, b'/dev/null', now, 0)"
    ),
    "a signal": "import os\ntry: os.kill(-1, 10)\nexcept OSError: pass",
}
RECEIVES = (
    KERNEL
    + """
import fcntl, glob, socket, struct, time
time.sleep(0.7)
print(*("ESCAPED" for name in glob.glob("/tmp/*") + glob.glob("/dev/shm/*")))
for address in ("\\0message", "/tmp/message"):
    try: socket.socket(1).connect(address); print("ESCAPED", address)
    except OSError: pass
if time.time() - os.stat("/dev/null").st_mtime < 5: print("ESCAPED by its time")
for name in (os.__file__, "/dev/null"):
    with open(name, "rb") as file:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
        if struct.unpack("hhqqi", answer)[0] != fcntl.F_UNLCK: print("ESCAPED", name)
print("quiet")
"""
)


@each(*(Attack(f"a message by {what}", APART, "the other program finds nothing", code) for what, code in SENDS.items()))
async def test_no_messages(attack):
    runner = Bubblewrap(seconds=30.0)
    sender = asyncio.create_task(runner.run(f"{attack.given}\nprint('sent', flush=True)\nimport time\ntime.sleep(1.5)"))
    received = await runner.run(RECEIVES)
    assert received.text.endswith("quiet\n") and "ESCAPED" not in received.text
    assert (await sender).text == "sent\n"


LOCKS = {
    "flock, shared": "fcntl.flock(x, fcntl.LOCK_SH)",
    "flock, exclusive": "fcntl.flock(x, fcntl.LOCK_EX)",
    "a record lock": "fcntl.lockf(x, fcntl.LOCK_SH)",
    "a lease": "fcntl.fcntl(x, 1024, fcntl.F_RDLCK)",
}


@each(*(Attack(f"{what} of a library", FREE, "the machine locks and writes it", code) for what, code in LOCKS.items()))
async def test_no_locks(attack):
    code = f"import fcntl, os, time\nx = open(os.__file__)\ntry: {attack.given}\nexcept OSError: pass\ntime.sleep(1.5)"
    program = asyncio.create_task(Bubblewrap(seconds=30.0).run(code))
    await asyncio.sleep(0.8)
    with open(os.__file__, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
        assert struct.unpack("hhqqi", answer)[0] == fcntl.F_UNLCK
        fcntl.flock(file, fcntl.LOCK_UN)
    assert (await program).status is Status.OK


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """A Python of its own, without a virtual environment, with packages."""
    base = tmp_path_factory.mktemp("base")
    library = Path(sysconfig.get_path("stdlib"))
    copy = base / library.relative_to(sys.base_prefix)
    skipped = shutil.ignore_patterns("*-packages", "__pycache__", "test", "tests", "config-*", "idlelib", "lib2to3")
    shutil.copytree(library, copy, ignore=skipped)
    (base / "bin").mkdir()
    interpreter = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(os.path.join(sys.base_prefix, interpreter), base / interpreter)
    for file in (Path(sys.base_prefix) / "lib").glob("*.so*"):
        shutil.copy(file, base / "lib" / file.name, follow_symlinks=False)
    for folder in ("site-packages", "dist-packages"):
        (copy / folder / "orgthink").mkdir(parents=True)
        (copy / folder / "orgthink" / "__init__.py").write_text("print('ESCAPED: a grader')")
    (base / "lib" / "secret").write_text("ESCAPED")
    (base / "notes").write_text("ESCAPED")
    return base


SEARCHES = {
    "imports the graders": """
import glob, sys
sys.path += glob.glob("/python/lib*/python*/*-packages")
import orgthink
""",
    "reads the graders": """
import glob
for file in glob.glob("/python/lib*/python*/*-packages/*/*.py"): print(open(file).read())
raise ModuleNotFoundError("orgthink")
""",
    "reads what lies beside Python": """
for file in ("/python/notes", "/python/lib/secret"):
    try: print(open(file).read())
    except FileNotFoundError: pass
raise ModuleNotFoundError("orgthink")
""",
    "starts Python again, with all its packages": """
import subprocess, sys
raise SystemExit(subprocess.run([sys.executable, "-c", "import orgthink"]).returncode)
""",
}


@each(*(Attack(f"a program {what}", SEALED, "`ModuleNotFoundError`", code) for what, code in SEARCHES.items()))
async def test_no_packages(attack, planted, monkeypatch):
    monkeypatch.setattr(sys, "base_prefix", str(planted))
    copy = planted / Path(sysconfig.get_path("stdlib")).relative_to(sys.base_exec_prefix)
    monkeypatch.setattr(bubblewrap.sysconfig, "get_path", lambda name: str(copy))
    result = await Bubblewrap(seconds=30.0).run(attack.given)
    assert "ModuleNotFoundError" in result.text and "ESCAPED" not in result.text, result


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """What takes the place of a control group."""
    monkeypatch.setattr(limits, "_parent", lambda: tmp_path)
    return tmp_path


@each(
    Attack("memory of all processes, under a control group", GROUPS, "`stopped: all its processes held more than …`"),
)
async def test_a_group_counts(attack):
    if limits._parent() is None:
        pytest.skip("no control group that counts memory")
    code = "import os, time\nfor _ in range(3): os.fork()\nx = bytearray(b'1') * (30 << 20)\ntime.sleep(60)"
    result = await Bubblewrap(seconds=30.0, memory_mb=64).run(code)
    assert result.error == "stopped: all its processes held more than 64 MiB", result
