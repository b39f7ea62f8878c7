"""wandb, TensorBoard, Trackio and MLflow, as they are published and without a network: what `--log` sends to each is
read again by its own reader (`make test-trackers`)."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_record import begun
from test_trackers import FEW, MANY, evaluation, rows
from tiny_recipes import ASYNCTHINK

from orgthink.cli import main
from orgthink.export import trackers
from orgthink.export.trackers import choose_tracker
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import go_on

pytestmark = [pytest.mark.trackers, pytest.mark.usefixtures("tiny_policy")]

Found = dict[int, dict[str, float]]
"""Step → numbers by name."""


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is sent from this machine, and nothing is written outside of the test's folder."""
    folder = tmp_path_factory.mktemp("trackers")
    given = {
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CONFIG_DIR": str(folder),
        "WANDB_CACHE_DIR": str(folder),
        "TRACKIO_DIR": str(folder / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        patch.setattr(trackers, "LAST_SECONDS", 600.0)  # MLflow's first database takes a minute on a busy machine
        yield


def wandb_records(file: Path) -> list[Any]:
    """Its reader's records. Its service ends the file, with an exit, a little after the run is finished."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    found: list[Any] = []
    for _ in range(300):
        store, found = DataStore(), []
        store.open_for_scan(str(file))
        with suppress(AssertionError):  # half a block
            while (data := store.scan_data()) is not None:
                found.append(Record.FromString(data))
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            break
        time.sleep(0.1)
    return found


def from_wandb(folder: RunFolder, id: str) -> Found:
    found: Found = defaultdict(dict)
    for file in sorted(folder.path.glob("wandb/offline-run-*/*.wandb")):
        for record in wandb_records(file):
            if record.WhichOneof("record_type") == "run":
                assert (record.run.run_id, record.run.project, record.run.display_name) == (id, "orgthink", folder.name)
            elif record.WhichOneof("record_type") == "history":
                line = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                found[line["_step"]] |= {name: value for name, value in line.items() if name[0] != "_"}
    return found


def from_tensorboard(folder: RunFolder, id: str) -> Found:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    found: Found = defaultdict(dict)
    for name in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(name)]
        assert steps == sorted(set(steps)) or folder.config["kind"] == "eval", "a repeated step is not forgotten"
        for event in events.Scalars(name):
            found[event.step][name] = event.value
    return found


def from_trackio(folder: RunFolder, id: str) -> Found:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = (run for run in trackio.Api().runs("orgthink") if run.name == f"{folder.name}-{id[:6]}")
    found: Found = defaultdict(dict)
    for line in SQLiteStorage.get_logs("orgthink", run.name, run_id=run.id):
        found[line["step"]] |= {name: value for name, value in line.items() if name not in ("step", "timestamp")}
    return found


def from_mlflow(folder: RunFolder, id: str) -> Found:
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("orgthink")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], f"tags.orgthink = '{id}'")
    assert (run.info.run_name, run.info.status) == (folder.name, "FINISHED")
    found: Found = defaultdict(dict)
    for name in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, name):
            found[metric.step][name] = metric.value
    return found


READERS = {"wandb": from_wandb, "tensorboard": from_tensorboard, "trackio": from_trackio, "mlflow": from_mlflow}
published = pytest.mark.parametrize(("name", "read"), READERS.items(), ids=READERS)


def read_again(folder: RunFolder, read: Callable[[RunFolder, str], Found]) -> Found:
    return read(folder, json.loads((folder.path / "tracker.json").read_text())["id"])


@published
def test_a_training_that_died_and_was_resumed_is_one_run(name: str, read: Any, tmp_path: Path) -> None:
    folder = begun(tmp_path / f"{name}-training", ASYNCTHINK, steps=4, save_every=2)
    choose_tracker(folder, name)

    def die(line: dict[str, Any]) -> None:
        if line["step"] == 3:
            raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        go_on(folder, die)
    assert main(["train", "--resume", str(folder.path)]) == 0
    found = read_again(folder, read)
    assert list(found) == [1, 2, 3, 4]
    for step, expected in enumerate(rows(folder.path), 1):
        timeless = {name: n for name, n in expected.items() if not name.startswith("seconds/")}
        assert {n: v for n, v in found[step].items() if n in timeless} == pytest.approx(timeless, rel=1e-6)


@published
def test_an_evaluation_in_two_parts_is_one_run_with_its_table(name: str, read: Any, tmp_path: Path) -> None:
    run = tmp_path / f"{name}-evaluation"
    assert evaluation(run, *FEW, "--log", name) == 3
    assert main(["eval", "--resume", str(run), *MANY]) == 0
    found = read_again(RunFolder.open(run), read)
    assert list(found) == [1, 2, 3, 4]
    for step, row in enumerate(rows(run), 1):
        assert found[step]["sampled_tokens"] == row["sampled_tokens"]
    for label, measures in json.loads((run / "summary.json").read_text()).items():
        for key in ("all_correct", "critical_path_steps"):
            assert found[4][f"{label}/{key}"] == pytest.approx(measures[key]["mean"])


def test_the_trackers_print_no_questions_and_only_where_they_log(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    assert os.environ["WANDB_MODE"] == "offline"
    assert evaluation(tmp_path / "run", "--log", "wandb") == 0
    told = [line for line in capfd.readouterr().err.splitlines() if "wandb" in line]
    assert len(told) == 1 and told[0].startswith("orgthink: wandb logs to ")
