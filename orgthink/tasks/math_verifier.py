"""math-verify in a process of its own: it evaluates nothing as code, and what hangs or eats memory there is killed.

The process answers one JSON line with another, `[right, offered]` → `true`. It limits itself, so that a text like
`9^{9^{99}}` ends it, in seconds of its own time whatever else runs; the next question starts another.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import lru_cache
from importlib.util import find_spec

from orgthink.errors import UserError

SECONDS = 2
"""Processor time for one question."""

MEMORY = 2 << 30
"""Bytes of address space."""

_lock = threading.Lock()
_process: subprocess.Popen[str] | None = None


@lru_cache(maxsize=4096)
def is_same(right: str, offered: str) -> bool:
    """Whether two results in LaTeX are the same; no if that cannot be decided. UserError without math-verify."""
    global _process
    if find_spec("math_verify") is None:
        raise UserError("grading mathematics needs math-verify: pip install 'orgthink[math]'")
    with _lock:
        if _process is None or _process.poll() is not None:
            _process = _start()
        answer = _ask(_process, json.dumps([right, offered]))
        if answer is None:
            _process.kill()
            _process.wait()
            _process = None
    return answer == "true"


def _start() -> subprocess.Popen[str]:
    """A process that ends with this one's pipe, and that Ctrl-C here does not reach."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _ask(process: subprocess.Popen[str], question: str) -> str | None:
    """The answer; `None` if the process died of the question."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(question + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip() or None
    except BrokenPipeError:
        return None


def _serve() -> None:
    import resource
    import signal

    from math_verify import LatexExtractionConfig, parse, verify

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    config = [LatexExtractionConfig(boxed_match_priority=0)]  # its reader of plain expressions would use eval

    def compare(right: str, offered: str) -> bool:
        left, other = (
            parse(f"\\boxed{{{text}}}", config, fallback_mode="no_fallback", parsing_timeout=0)
            for text in (right, offered)
        )
        return verify(left, other, float_rounding=12, numeric_precision=30, timeout_seconds=0)

    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # unhandled, its signal ends the process
        try:
            same = bool(compare(*json.loads(line)))
        except Exception:  # whatever the library makes of such a text, it is not the right one
            same = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(same), flush=True)


if __name__ == "__main__":
    _serve()
