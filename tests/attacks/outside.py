"""What programs in a sandbox must not reach, and a user without rights who starts them."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

import orgthink
from orgthink.tools import limits

PROJECT = Path(orgthink.__file__).parent.parent
USER = "54321"
"""Who has no rights on any machine."""


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

    def reached(self) -> None:
        """The same programs outside of a sandbox do reach it: else their failing would prove nothing."""
        code = self.fill(
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
        self.stream.accept()[0].close()
        self.abstract.accept()[0].close()
        assert self.datagrams.recv(9) == b"x"


ELDERS: set[int] = set()
"""Children of this process that other tests have left to go on, such as a pool of workers."""


def children() -> list[int]:
    """Those that came since."""
    return [pid for pid in limits.children(os.getpid()) if pid not in ELDERS]


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


@contextmanager
def bait(folder: Path) -> Iterator[Outside]:
    """A secret, someone who listens, and this process, which adopts whatever outlives its parents."""
    ELDERS.update(limits.children(os.getpid()))
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    secret = folder / "secret"
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
        outside = Outside(secret, f"mark-{uuid4().hex}", stream, datagrams, abstract, name)
        outside.reached()
        yield outside
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


def command(code: str) -> tuple[list[str], dict[str, str]]:
    """What runs that program as a user without rights, and its environment; skips where there is no such user."""
    environment = {"PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path]), "PATH": os.environ["PATH"]}
    if os.geteuid():
        return [sys.executable, "-c", code], environment
    start = _as_user()
    trouble = _trouble(tuple(start), environment["PYTHONPATH"])
    if trouble:
        pytest.skip(trouble)
    return [*start, code], environment


def _as_user() -> list[str]:
    """The interpreter may lie where only root can read, so root shows it to the user in another place."""
    interpreter = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    script = f'mount --bind "{sys.base_prefix}" /mnt && exec setpriv --reuid {USER} --regid {USER} --clear-groups "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", "/mnt/" + interpreter, "-B", "-c"]


@cache
def _trouble(start: tuple[str, ...], path: str) -> str:
    """Why there is no such user here; nothing if there is."""
    if not all(map(shutil.which, ("unshare", "setpriv"))):
        return "no way to become a user without rights"
    environment = {"PYTHONPATH": path, "PATH": os.environ["PATH"]}
    probe = [*start, "import orgthink.tools.sandbox"]
    done = subprocess.run(probe, env=environment, capture_output=True, text=True, cwd="/")
    return f"a user without rights cannot read the project: {done.stderr[-200:]}" if done.returncode else ""
