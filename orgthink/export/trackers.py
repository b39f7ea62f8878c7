"""Trackers: the numbers of a run go to Weights & Biases, TensorBoard, Trackio or MLflow while it runs.

tracker.json in the run folder names the tracker and has the run's id there, so that a resumed run goes on in it. A
tracker works in a thread of its own: a slow one delays nothing, and one that fails ends no run. Where the trackers send
to is set as for every other program: by their own environment variables and log-ins.
"""

from __future__ import annotations

import posixpath
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from os import environ
from queue import SimpleQueue
from time import time
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
PROJECT = "orgthink"
"""Project, or experiment, if the tracker's environment variable names no other."""


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
    {name: f"{__name__}:{name}" for name in ("wandb", "tensorboard", "trackio", "mlflow")},
    "a class or a function of a run folder and of the run's id in the tracker",
    lambda found: found if callable(found) else None,
)
"""Trackers by name. The names of this package are also those of the packages that they need."""


def require_tracker(name: str | None) -> None:
    """UserError for an unknown name, and for a tracker whose package is not installed."""
    if name is not None:
        TRACKERS.named(name)
        known = TRACKERS.registrations().get(name)
        if known is not None and known.dist is None and find_spec(name) is None:
            raise UserError(f"--log {name} needs a package: pip install {name}")


def choose_tracker(folder: RunFolder, name: str | None) -> None:
    """Let a run be tracked from now on; `None` keeps what it has."""
    file = folder.path / TRACKER
    if name is not None and not (file.is_file() and json_object(file).get("tracker") == absolute(name)):
        folder.write_json(TRACKER, {"tracker": absolute(name), "id": uuid4().hex[:16]})


@contextmanager
def tracking(folder: RunFolder) -> Iterator[Callable[[int, Mapping[str, Any]], None]]:
    """Yields the function that gives a line of metrics to the run's tracker, if it has one."""
    rows = SimpleQueue[Any]()
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


def _send(folder: RunFolder, rows: SimpleQueue[Any]) -> None:
    """Open the tracker of a run and give it steps and lines of metrics until `None`. Whatever fails is one line.

    It is opened for the first line: a run that is refused, because another process writes it, leaves nothing there."""
    try:
        row, saved = rows.get(), json_object(folder.path / TRACKER)
        if row is None:
            return
        tracker = TRACKERS.named(str(saved.get("tracker")))(folder, str(saved.get("id")))
        while row is not None:
            tracker.log(row[0], {name: value for name, value in numbers(row[1]) if name != "step"})
            row = rows.get()
        tracker.finish()
    except BaseException as error:  # some libraries raise SystemExit
        show(f"orgthink: the tracker failed, and the run goes on without it: {reason(error)}", error=True)


def wandb(folder: RunFolder, id: str) -> Tracker:
    """Weights & Biases. With WANDB_MODE=offline the run stays in the run folder, for `wandb sync`."""
    import wandb

    # It asks no question next to a progress bar, and takes no copy of what the program prints.
    wandb.setup(wandb.Settings(silent=True, console="off"))
    of_run = {"name": folder.name, "id": id, "dir": folder.path, "config": dict(folder.config)}
    run = wandb.init(project=environ.get("WANDB_PROJECT", PROJECT), resume="allow", **of_run)
    show(f"orgthink: wandb logs to {run.url or run.dir}", error=True)
    return Tracker(lambda step, numbers: run.log(dict(numbers), step=step), run.finish)


def trackio(folder: RunFolder, id: str) -> Tracker:
    """Trackio: a local database, or the Space of TRACKIO_SPACE_ID."""
    import trackio

    # A run is resumed by its name, so the name has to be unique.
    of_run = {"name": f"{folder.name}-{id[:6]}", "config": dict(folder.config)}
    run = trackio.init(environ.get("TRACKIO_PROJECT", PROJECT), resume="allow", embed=False, **of_run)
    return Tracker(lambda step, numbers: run.log(dict(numbers), step=step), run.finish)


def tensorboard(folder: RunFolder, id: str) -> Tracker:
    """TensorBoard: event files in the folder `tensorboard` of the run folder."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer, begun = EventFileWriter(str(folder.path / "tensorboard")), False

    def log(step: int, numbers: Mapping[str, float]) -> None:
        nonlocal begun
        if not begun:  # readers forget this step and later ones: a resumed training repeats them
            writer.add_event(Event(step=step, session_log=SessionLog(status=SessionLog.START)))
        begun, values = True, [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        writer.add_event(Event(step=step, wall_time=time(), summary=Summary(value=values)))

    return Tracker(log, writer.close)


def mlflow(folder: RunFolder, id: str) -> Tracker:
    """MLflow, at MLFLOW_TRACKING_URI."""
    import mlflow

    mlflow.set_experiment(environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    known = mlflow.search_runs(filter_string=f"tags.orgthink = '{id}'", output_format="list")
    mlflow.start_run(known[0].info.run_id if known else None, run_name=folder.name, tags={"orgthink": id})
    mlflow.log_dict(dict(folder.config), "config.json")

    def log(step: int, numbers: Mapping[str, float]) -> None:
        # Its names have few kinds of characters, and are normal paths.
        plain = {posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", name)): value for name, value in numbers.items()}
        mlflow.log_metrics(plain, step=step)

    return Tracker(log, mlflow.end_run)
