"""Whom the profile of a step on verl gives its time to: the innermost code that is somebody's. `make test-verl`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

pytest.importorskip("verl")

import orgthink
from benchmarks.verl_profile import LOOP, OTHERS, PARTS, part_of, part_of_file

pytestmark = pytest.mark.verl

HOUSE = Path(orgthink.__file__).parent


def stack(*files: str) -> FrameType:
    """The innermost frame of functions that call each other, the outermost first, each in a file of that name."""
    inner: Callable[[], FrameType] = lambda: sys._getframe(1)  # noqa: E731
    for file in reversed(files):
        name = "_run_once" if file.endswith("base_events.py") else "work"
        made: dict = {"inner": inner}
        exec(compile(f"def {name}():\n    return inner()", file, "exec"), made)
        inner = made[name]
    return inner()


@pytest.mark.parametrize(
    ("files", "part"),
    [
        (["/orgthink/credit/shared.py"], "rewards, credit, rows"),
        (["/orgthink/training/rl.py", "/orgthink/scale/verl/backend.py"], "rows to workers"),
        (["/orgthink/scale/verl/backend.py", "site-packages/torch/tensor.py"], "rows to workers"),
        (["/orgthink/scale/verl/backend.py", "site-packages/transfer_queue/client.py", "json/encoder.py"], OTHERS),
        (["/orgthink/scale/verl/engine.py", "/orgthink/engines/tokenizer.py"], "tokens to servers and back"),
        (["/orgthink/training/rl.py", "asyncio/base_events.py", "selectors.py"], LOOP),
        (["/orgthink/training/rl.py", "asyncio/base_events.py", "site-packages/verl/llm.py"], OTHERS),
        (["asyncio/base_events.py", "/orgthink/training/rollout.py", "/orgthink/runtime/session.py"],
         "organizations and runtime"),
    ],
)  # fmt: skip
def test_time_belongs_to_the_innermost_that_is_known(files: list[str], part: str):
    assert part_of(stack(*files)) == part


def test_every_place_is_there():
    """A module that is renamed would give its time to its callers in silence."""
    named = {place for places in PARTS.values() for place in places if place.startswith("orgthink/")}
    assert all((HOUSE.parent / place).exists() for place in named)
    assert part_of_file(str(HOUSE / "training" / "checkpoint.py")) == "checkpoint, metrics"
    assert part_of_file(str(HOUSE / "training" / "rl.py")) == "rewards, credit, rows"
