"""`make bench`: all ratios that this environment can measure, with their goals and conditions.

`--only` takes every other
group of rows as well. `--json FILE` adds the rows to a file: row → {"measured", "goal", "holds", "conditions"}.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from benchmarks.report import Line
from orgthink.record.provenance import commit
from orgthink.util.threads import cores, set_threads

MODULES = {
    "runtime": "runtime_overhead",
    "forks": "many_forks",
    "parallel-calls": "parallel_calls",
    "local": "local_engine",
    "training": "training",
    "memory": "memory",
    "seconds": "pocket_seconds",
    "waiting": "waiting",
    "aborts": "aborts",
    "serving": "serving",
    "smollm2": "smollm2",
    "vllm": "vllm_engine",
}
"""Module that measures a group of rows."""

Group = Literal[
    "all",
    "runtime",
    "forks",
    "parallel-calls",
    "local",
    "training",
    "memory",
    "seconds",
    "waiting",
    "aborts",
    "serving",
    "smollm2",
    "vllm",
]


def main(
    only: Group = "all",
    file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure and print."""
    gc.set_threshold(20_000)
    set_threads(spare=1)
    machine = f"{platform.machine()}, {cores()} cores, Python {platform.python_version()}, commit {commit()}"
    print(f"{machine}\n", flush=True)
    for line in rows(only):
        verdict = "met" if line.met else "missed"
        print(f"{line.name}: {line.value:.2f}  (goal {line.goal}: {verdict})\n    {line.conditions}", flush=True)
        if file is not None:
            save(line, machine, file)


def rows(only: Group) -> Iterator[Line]:
    """Yield the ratios as they are measured. Where vLLM is installed, all are those of vLLM."""
    if only == "all":
        installed = importlib.util.find_spec("vllm") is not None
        names = (
            ("vllm", "smollm2", "waiting", "aborts")
            if installed
            else tuple(name for name in get_args(Group) if name not in ("all", "vllm"))
        )
    else:
        names = (only,)
    for name in names:
        yield from _group(name)


def _group(name: str) -> Iterable[Line]:
    return importlib.import_module(f"benchmarks.{MODULES[name]}").run()


def save(line: Line, machine: str, path: Path) -> None:
    """Add a row to the file, in place of an older one of its name."""
    found = json.loads(path.read_bytes()) if path.exists() else {}
    conditions = f"{machine}; {line.conditions}"
    found[line.name] = {"measured": line.value, "goal": line.goal, "holds": line.met, "conditions": conditions}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads do not end by themselves
