"""Trackers: the numbers of a run go to Weights & Biases, TensorBoard, Trackio or MLflow while it runs.

tracker.json in the run folder names the tracker and has the run's id there, so that a resumed run goes on in it. A
tracker works in a thread of its own: a slow one delays nothing, and one that fails ends no run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any, NamedTuple
from uuid import uuid4

from orgthink.record.folder import TRACKER, RunFolder
from orgthink.util.errors import UserError
from orgthink.util.references import absolute
from orgthink.util.registry import Registry
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason, show
from orgthink.view.curves import numbers

LAST_SECONDS = 60.0
"""Seconds that a tracker gets at the end of a run for what it has not sent yet."""

Rows = SimpleQueue[tuple[int, Mapping[str, Any]] | None]
"""Steps and lines of metrics; `None` is the end."""


class Tracker(NamedTuple):
    """Takes the numbers of one run; any object with these two functions does. An exception ends the tracker, not the
    run."""

    log: Callable[[int, Mapping[str, float]], Any]
    """Takes the numbers of a training's step, or of an evaluation after so many episodes. A resumed training repeats
    the steps after its checkpoint."""
    finish: Callable[[], Any]
    """Sends what is left. The run may be resumed later."""


TRACKERS: Registry[Callable[[RunFolder, str], Tracker]] = Registry(
    "tracker",
    "orgthink.trackers",
    {
        "wandb": "orgthink.export.published_trackers:wandb",
        "tensorboard": "orgthink.export.published_trackers:tensorboard",
        "trackio": "orgthink.export.published_trackers:trackio",
        "mlflow": "orgthink.export.published_trackers:mlflow",
    },
    "a class or a function of a run folder and of the run's id in the tracker",
    lambda found: found if callable(found) else None,
)
"""Trackers by name. The names of this package are also those of the packages that they need."""


def require_tracker(name: str | None) -> None:
    """UserError for an unknown name, and for a tracker whose package is not installed."""
    if name is not None:
        TRACKERS.named(name)
        if TRACKERS.registrations().get(name, ("", ""))[1] == "orgthink" and find_spec(name) is None:
            raise UserError(f"--log {name} needs a package: pip install {name}")


def choose_tracker(folder: RunFolder, name: str | None) -> None:
    """Let a run be tracked from now on; `None` keeps what it has."""
    file = folder.path / TRACKER
    if name is not None and not (file.is_file() and json_object(file).get("tracker") == absolute(name)):
        folder.write_json(TRACKER, {"tracker": absolute(name), "id": uuid4().hex[:16]})


@contextmanager
def tracking(folder: RunFolder) -> Iterator[Callable[[int, Mapping[str, Any]], None]]:
    """Yields the function that gives a line of metrics to the run's tracker, if it has one."""
    rows = Rows()
    thread = threading.Thread(target=_send, args=(folder, rows), daemon=True)
    if (folder.path / TRACKER).is_file():
        thread.start()
    try:
        yield lambda step, line: rows.put((step, line)) if thread.is_alive() else None
    finally:
        rows.put(None)
        if thread.is_alive():
            thread.join(LAST_SECONDS)
        if thread.is_alive():
            show(f"orgthink: the tracker has not sent everything after {LAST_SECONDS:.0f} seconds", error=True)


def _send(folder: RunFolder, rows: Rows) -> None:
    """Open the tracker of a run and give it the rows. Whatever fails is one line."""
    try:
        saved = json_object(folder.path / TRACKER)
        tracker = TRACKERS.named(str(saved.get("tracker")))(folder, str(saved.get("id")))
        while (row := rows.get()) is not None:
            tracker.log(row[0], {name: value for name, value in numbers(row[1]) if name != "step"})
        tracker.finish()
    except BaseException as error:  # some libraries raise SystemExit
        show(f"orgthink: the tracker failed, and the run goes on without it: {reason(error)}", error=True)
