"""Weights & Biases, TensorBoard, Trackio and MLflow. Where they send to is set as for every other program: by their own
environment variables and log-ins."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from os import environ
from time import time

from orgthink.export.trackers import Tracker
from orgthink.record.folder import RunFolder
from orgthink.util.terminal import show

PROJECT = "orgthink"
"""Project, or experiment, if the tracker's environment variable names no other."""


def wandb(folder: RunFolder, id: str) -> Tracker:
    """Weights & Biases. With WANDB_MODE=offline the run stays in the run folder, for `wandb sync`."""
    import wandb

    # It asks no question next to a progress bar, and takes no copy of what the program prints.
    wandb.setup(wandb.Settings(silent=True, console="off"))
    project, config = environ.get("WANDB_PROJECT", PROJECT), dict(folder.config)
    run = wandb.init(project=project, name=folder.name, id=id, resume="allow", dir=folder.path, config=config)
    show(f"orgthink: wandb logs to {run.url or run.dir}", error=True)
    return Tracker(lambda step, numbers: run.log(dict(numbers), step=step), run.finish)


def trackio(folder: RunFolder, id: str) -> Tracker:
    """Trackio: a local database, or the Space of TRACKIO_SPACE_ID."""
    import trackio

    project, config = environ.get("TRACKIO_PROJECT", PROJECT), dict(folder.config)
    # A run is resumed by its name, so the name has to be unique.
    run = trackio.init(project, f"{folder.name}-{id[:6]}", config=config, resume="allow", embed=False)
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
    if known := mlflow.search_runs(filter_string=f"tags.orgthink = '{id}'", output_format="list"):
        mlflow.start_run(known[0].info.run_id)
    else:
        mlflow.start_run(run_name=folder.name, tags={"orgthink": id})
        mlflow.log_dict(dict(folder.config), "config.json")

    def log(step: int, numbers: Mapping[str, float]) -> None:
        # Its names have few kinds of characters, and are normal paths.
        plain = {posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", name)): value for name, value in numbers.items()}
        mlflow.log_metrics(plain, step=step)

    return Tracker(log, mlflow.end_run)
