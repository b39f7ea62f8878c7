"""Two hundred hostile programs, handed over at one moment by a user without rights: `siege.py`, watched by root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.outside import USER, command, of_user

from orgthink.tools import limits

PROGRAMS, SECONDS = 200, 1.0
"""How many, and what each gets. As many run side by side as by default."""
LIMIT = 2 << 30
"""Bytes for orgthink and all its sandboxes."""
LATE = 0.1
"""Seconds by which the event loop may be late."""


def available() -> int:
    """Bytes of memory that programs could get now."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) << 10


@pytest.mark.slow
@each(
    Attack(
        "200 hostile programs at once, from a user without rights, under a limit of memory",
        "The machine is afterwards as it was before, and orgthink went on meanwhile.",
        "200 results; memory is back within 5 %, no process, mount, lock or control group is left, the event loop was "
        "never late by more than 100 ms",
    )
)
def test_a_siege(attack, capsys):
    parent = limits._parent()
    if os.geteuid() or parent is None:
        pytest.skip("needs root, and a control group that counts memory")
    start, environment = command("")
    group = limits._made(parent, LIMIT, 10_000)
    for path in (group.folder, *group.folder.iterdir()):
        shutil.chown(path, int(USER), int(USER))
    arguments = [str(Path(__file__).with_name("siege.py")), str(PROGRAMS), str(SECONDS), str(2 * (os.cpu_count() or 1))]
    before, mounts = available(), Path("/proc/mounts").read_text()
    try:
        run = limits.entered(group, [*start[:-2], *arguments])
        done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=600)
        assert not done.returncode, done.stderr[-2000:]
        found = json.loads(done.stdout)
        deadline = time.monotonic() + 60
        while abs(available() - before) > 0.05 * before and time.monotonic() < deadline:
            time.sleep(0.5)  # the kernel takes its time
        found |= {"before": before, "after": available()}
        with capsys.disabled():
            print(json.dumps(found), file=sys.stderr)
        assert not of_user()
        assert not [path for path in group.folder.iterdir() if path.is_dir()]
    finally:
        for pid in of_user():
            os.kill(pid, 9)
        group.folder.rmdir()
    assert sum(found["ends"].values()) == PROGRAMS
    assert not [end for end in found["ends"] if "did not start" in end]
    assert abs(found["after"] - before) <= 0.05 * before
    assert Path("/proc/mounts").read_text() == mounts
    assert f":{os.stat(os.__file__).st_ino} " not in Path("/proc/locks").read_text(), "what one of them tries to lock"
    assert found["late"] <= LATE
