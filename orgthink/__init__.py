"""Organizations of language models: run, measured, trained.

    import orgthink

    episode = orgthink.solve("What is 17 * 23?", organization="asyncthink", url="http://localhost:8000/v1")
    run = orgthink.evaluate("math:problems.jsonl", ["sequential", "asyncthink"], n=50, model="Qwen3-4B")
    model = orgthink.train("asyncthink-qwen3-math", model="Qwen3-4B", settings={"rollout.task": "math:rows.jsonl"})

Each has an asynchronous twin (`asolve`, `aevaluate`, `atrain`). Reading order is import order is data flow: *text →
actions → episode → numbers → credit → weights*.

7  cli · api
6  recipes · scale · baselines
5  training · coldstart · interchange · export · evaluation · grading · compatibility
4  organizations · credit
3  tools · rewards · view
2  runtime · measure · store · journal · episode_json
1  engines · grammar · episode · tasks

A module imports only from its own floor and from those below; `tests/test_layers.py` fails on an upward arrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from orgthink.util.version import __version__

if TYPE_CHECKING:
    from orgthink.api import Organization, Run, aevaluate, asolve, atrain, evaluate, solve, train

__all__ = ["Organization", "Run", "__version__", "aevaluate", "asolve", "atrain", "evaluate", "solve", "train"]


def __getattr__(name: str) -> Any:
    """The functions of `orgthink.api`, imported when they are first used: `import orgthink` stays light."""
    if name in __all__:
        return getattr(importlib.import_module("orgthink.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
