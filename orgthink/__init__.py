"""Organizations of language models: run, measured, trained.

    import orgthink

    episode = orgthink.solve("What is 17 * 23?", organization="asyncthink", url="http://localhost:8000/v1")
    run = orgthink.evaluate("math:problems.jsonl", ["sequential", "asyncthink"], n=50, model="Qwen3-4B")
    model = orgthink.train("asyncthink-qwen3-math", model="Qwen3-4B", settings={"rollout.task": "math:rows.jsonl"})

Each has an asynchronous twin (`asolve`, `aevaluate`, `atrain`). The order of the rooms is the flow of data: *text →
actions → episode → numbers → credit → weights*; `tests/test_structure.py` has the list.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from orgthink.util.version import __version__

if TYPE_CHECKING:
    from orgthink.api import (
        Agent,
        Episode,
        Grade,
        Message,
        Organization,
        Problem,
        Run,
        Session,
        Training,
        aevaluate,
        asolve,
        atrain,
        critical_path,
        evaluate,
        load_run,
        load_training,
        organization,
        solve,
        task,
        train,
    )

__all__ = [
    "Agent", "Episode", "Grade", "Message", "Organization", "Problem", "Run", "Session", "Training", "__version__",
    "aevaluate", "asolve", "atrain", "critical_path", "evaluate", "load_run", "load_training", "organization", "solve",
    "task", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The names of `orgthink.api`, imported when they are first used: `import orgthink` stays light."""
    if name in __all__:
        return getattr(importlib.import_module("orgthink.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
