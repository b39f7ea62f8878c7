"""Hostile programs, many at once, as a user without rights starts them: how late the event loop was, as a line of JSON.

`python siege.py PROGRAMS SECONDS SIDE_BY_SIDE`
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

from orgthink.tools import limits
from orgthink.tools.sandbox import Bubblewrap

TICK = 0.01
"""Seconds between two looks at the clock."""

HOSTILE = [
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "import os\nfor _ in range(8): os.fork()\nx = []\nwhile True: x.append(bytearray(b'1') * (1 << 20))",
    "import os\nfor _ in range(3): os.fork()\nx = bytearray(b'1') * (100 << 20)\nwhile True: pass",
    "import os\nn = 0\nwhile True:\n    open(f'/tmp/{os.getpid()}-{n}', 'w').close()\n    n += 1",
    """
import os, socket
for _ in range(4):
    try: os.fork()
    except OSError: pass
held = []
try:
    while True:
        held.append(socket.socketpair())
        for end in held[-1]:
            end.setblocking(False)
            try:
                while True: end.send(bytes(1 << 16))
            except BlockingIOError: pass
except OSError: pass
while True: pass
""",
    "import os\nfor _ in range(4): os.fork()\nx = open(f'/tmp/{os.getpid()}', 'wb')\n"
    "while True: x.write(bytes(1 << 16))",
    "import os\nos.fork()\nwhile True: os.write(1, b'x' * 4096)",
    "import threading\nwhile True:\n    try: threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()\n"
    "    except RuntimeError: pass",
    "import ctypes, os\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nos.fork() or os.setsid()\nwhile True: pass",
    "import os\nn = 0\nwhile True:\n    n += 1\n    os.path.exists('/usr/lib/' + str(n) * 20)",
    "import fcntl, os\nx = open(os.__file__)\nwhile True:\n"
    "    try: fcntl.lockf(x, fcntl.LOCK_SH)\n    except OSError: pass",
    "import os\nwhile True:\n    try: os.fork() or os._exit(0)\n    except OSError: pass",
]


async def main(programs: int, seconds: float, side_by_side: int) -> None:
    runner = Bubblewrap(seconds=seconds, max_parallel=side_by_side)
    await runner.run("print(1)")
    late = [0.0]

    async def watch() -> None:
        now = asyncio.get_running_loop().time
        while True:
            due = now() + TICK
            await asyncio.sleep(TICK)
            late.append(now() - due)

    watching = asyncio.create_task(watch())
    results = await asyncio.gather(
        *(runner.run(HOSTILE[n % len(HOSTILE)]) for n in range(programs)), return_exceptions=True
    )
    watching.cancel()
    ends = Counter(str(result) if isinstance(result, Exception) else str(result.error) for result in results)
    late.sort()
    print(json.dumps({
        "late": late[-1], "late_99": late[int(len(late) * 0.99)], "ends": ends, "groups": limits._parent() is not None,
    }))  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
