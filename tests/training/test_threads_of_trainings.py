"""A training where an event loop runs already, as in a notebook: it works, and ends between two steps."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from tiny_policy import TINY
from tiny_recipes import named

import orgthink
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.interrupt import STOP
from orgthink.util.errors import UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")

STEPS = 4


def options(out: Path, **more: Any) -> dict[str, Any]:
    return {"model": str(TINY), "settings": {"steps": STEPS}, "out": out, **more}


def require_saved(out: Path, step: int) -> None:
    """All steps that are told are in the newest checkpoint, and another training goes on from it."""
    assert [line["step"] for line in RunFolder.open(out).metrics()] == list(range(1, step + 1))
    (newest,) = (out / "checkpoints").iterdir()
    assert checkpoint.state(newest)["step"] == step


@pytest.mark.parametrize("recipe", ["SEQUENTIAL", "MARSRL"])
async def test_it_trains_in_a_notebook(tmp_path, recipe):
    training = orgthink.train(named(recipe), **options(tmp_path / "run"))
    assert training == orgthink.load_training(tmp_path / "run") and training.model.name == "model"
    assert len(list(RunFolder.open(tmp_path / "run").metrics())) == STEPS


async def test_an_error_is_raised_as_itself(tmp_path):
    with pytest.raises(UserError, match="unknown model"):
        orgthink.train(named("SEQUENTIAL"), model="nowhere", out=tmp_path / "run")
    with pytest.raises(UserError, match="unknown model"):
        await orgthink.atrain(named("SEQUENTIAL"), model="nowhere", out=tmp_path / "run")


async def test_ctrl_c_in_a_notebook_ends_the_step(tmp_path):
    def report(line: dict[str, Any]) -> None:
        if line["step"] == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            stop = STOP.get()
            assert stop is not None and stop.wait(60)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            orgthink.train(named("SEQUENTIAL"), **options(tmp_path / "run", report=report))
    finally:
        signal.signal(signal.SIGINT, before)
    require_saved(tmp_path / "run", 1)


async def test_a_cancelled_training_ends_its_step(tmp_path):
    first, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def report(line: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(first.set)
        go_on.wait(60)

    training = asyncio.create_task(orgthink.atrain(named("SEQUENTIAL"), **options(tmp_path / "run", report=report)))
    await first.wait()
    training.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await training
    require_saved(tmp_path / "run", 1)
