"""`--log`: a tracker gets the numbers of the metrics, a resumed run goes on in it, and no tracker ends a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from own_trackers import kept, named
from test_record import begun
from tiny_policy import TINY
from tiny_recipes import ASYNCTHINK, TASK, TERSE
from tiny_recipes import named as recipe

import orgthink
from orgthink.cli import main
from orgthink.export import trackers
from orgthink.export.trackers import choose_tracker
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import go_on
from orgthink.util.errors import UserError
from orgthink.view.curves import numbers

pytestmark = pytest.mark.usefixtures("tiny_policy")


def train(run: Path, tracker: str, *others: str) -> int:
    named_recipe = ["train", recipe("ASYNCTHINK"), "--model", str(TINY), "--device", "cpu", "--steps", "2"]
    return main([*named_recipe, "--out", str(run), "--log", tracker, *others])


def evaluation(run: Path, *others: str) -> int:
    systems = ["--organizations", "sequential", "asyncthink", "--prompts", TERSE, "--max-tokens", "24"]
    given = ["eval", "--model", str(TINY), "--task", TASK, *systems, "--n", "2", "--concurrency", "1"]
    return main([*given, "--out", str(run), *others])


FEW, MANY = ("--max-total-tokens", "1"), ("--max-total-tokens", "100000")
"""Limits of one episode, and of all."""


def rows(run: Path) -> list[dict[str, float]]:
    """The numbers of each line of metrics.jsonl."""
    return [{name: n for name, n in numbers(line) if name != "step"} for line in RunFolder.open(run).metrics()]


def test_a_training_is_logged_step_by_step(tmp_path: Path) -> None:
    assert train(tmp_path / "run", named("Kept")) == 0
    *steps, last = kept(tmp_path / "run")
    assert [line["step"] for line in steps] == [1, 2] and last["finished"]
    assert [line["numbers"] for line in steps] == rows(tmp_path / "run")
    assert {"reward", "all_correct", "loss", "critical_path_steps", "seconds/train"} <= steps[0]["numbers"].keys()


def test_a_resumed_training_goes_on_in_the_same_run(tmp_path: Path) -> None:
    """It dies after a step that no checkpoint has: this step is logged again."""
    folder = begun(tmp_path / "run", ASYNCTHINK, steps=4, save_every=2)
    choose_tracker(folder, named("Kept"))

    def die(line: dict[str, Any]) -> None:
        if line["step"] == 3:
            raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        go_on(folder, die)
    assert main(["train", "--resume", str(folder.path)]) == 0
    found = kept(folder.path)
    assert [line["step"] for line in found if "step" in line] == [1, 2, 3, 3, 4]
    assert len({line["id"] for line in found}) == 1 and sum("finished" in line for line in found) == 2


def test_a_refused_run_opens_no_tracker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = begun(tmp_path / "run", ASYNCTHINK, steps=2, save_every=2)
    choose_tracker(folder, named("Kept"))
    with folder.journal(redo=None):
        assert main(["train", "--resume", str(folder.path)]) == 2
    assert "another process" in capsys.readouterr().err and not (folder.path / "kept.jsonl").exists()


def test_an_evaluation_is_logged_by_episode_with_its_table_at_the_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert evaluation(run, "--log", named("Kept")) == 0
    *episodes, table, _ = kept(run)
    assert [line["step"] for line in episodes] == [1, 2, 3, 4] and table["step"] == 4
    logged = [line["numbers"] for line in episodes]
    assert logged == [{name: n for name, n in row.items() if name != "done"} for row in rows(run)]
    summary = json.loads((run / "summary.json").read_text())
    for name, measures in summary.items():
        for key in ("all_correct", "critical_path_steps", "sampled_tokens"):
            assert table["numbers"][f"{name}/{key}"] == measures[key]["mean"]


@pytest.mark.parametrize("again", [(), ("--log", named("Kept"))])
def test_a_resumed_evaluation_goes_on_in_the_same_run(tmp_path: Path, again: tuple[str, ...]) -> None:
    run = tmp_path / "run"
    assert evaluation(run, *FEW, "--log", named("Kept")) == 3
    assert main(["eval", "--resume", str(run), *MANY, *again]) == 0
    found = kept(run)
    assert [line["step"] for line in found if "finished" not in line] == [1, 1, 2, 3, 4, 4]
    assert len({line["id"] for line in found}) == 1


def test_a_run_may_be_logged_from_its_middle_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert evaluation(run, *FEW) == 3
    assert main(["eval", "--resume", str(run), *MANY, "--log", named("Kept")]) == 0
    assert [line["step"] for line in kept(run) if "finished" not in line] == [2, 3, 4, 4]


@pytest.mark.parametrize(
    ("tracker", "says"),
    [
        ("never_opens", "no route to the tracker"),
        ("exits", "log in first"),
        ("never_logs", "division by zero"),
        ("never_finishes", "no route to the tracker"),
        ("NUMBER", "is not a tracker"),
    ],
)
def test_a_tracker_that_fails_is_one_line_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tracker: str, says: str
) -> None:
    """It is named in the run folder: on the command line, a wrong name is refused."""
    run = tmp_path / "run"
    assert evaluation(run, *FEW) == 3
    capsys.readouterr()
    (run / "tracker.json").write_text(json.dumps({"tracker": named(tracker), "id": "1"}))
    assert main(["eval", "--resume", str(run), *MANY]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "the tracker" in line]
    assert len(told) == 1 and says in told[0] and "the run goes on without it" in told[0]
    assert len(list(RunFolder.open(run).episodes())) == 4


def test_a_training_goes_on_without_a_tracker_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", named("never_logs")) == 0
    assert "division by zero" in capsys.readouterr().err and len(rows(tmp_path / "run")) == 2


def test_a_tracker_that_hangs_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trackers, "LAST_SECONDS", 0.1)
    assert train(tmp_path / "run", named("hangs")) == 0
    assert "has not sent everything" in capsys.readouterr().err and len(rows(tmp_path / "run")) == 2


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "trackio", "mlflow"])
@pytest.mark.parametrize("command", ["train", "eval"])
def test_a_package_that_is_absent_is_one_line(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    run = tmp_path / "run"
    assert (train(run, name) if command == "train" else evaluation(run, "--log", name)) == 2
    assert capsys.readouterr().err == f"orgthink: --log {name} needs a package: pip install {name}\n"
    assert not run.exists()


def test_a_wrong_name_gets_a_suggestion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "tensorbord") == 2
    assert "unknown tracker 'tensorbord': did you mean tensorboard?" in capsys.readouterr().err
    assert train(tmp_path / "run", named("NUMBER")) == 2
    assert "is not a tracker: it must be a class or a function" in capsys.readouterr().err
    assert train(tmp_path / "run", "wandb", "--backend", "verl") == 2
    assert "trainer.logger=[wandb]" in capsys.readouterr().err


def test_a_new_run_in_the_folder_of_an_unused_one_has_no_tracker(tmp_path: Path) -> None:
    choose_tracker(begun(tmp_path / "run", ASYNCTHINK), named("Kept"))
    assert not (begun(tmp_path / "run", ASYNCTHINK).path / "tracker.json").exists()


def test_python_logs_a_training_and_a_resumed_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked = {"log": named("Kept"), "progress": False}
    trained = orgthink.train(
        recipe("ASYNCTHINK"), model=TINY, device="cpu", steps=2, out=tmp_path / "trained", **tracked
    )
    assert [line["step"] for line in kept(trained.path)[:-1]] == [1, 2]
    few = {"n": 2, "prompts": TERSE, "max_tokens": 24, "concurrency": 1, "max_total_tokens": 1}
    run = orgthink.evaluate(TASK, ["sequential"], model=TINY, **few, out=tmp_path / "run", progress=False)
    assert not (run.path / "kept.jsonl").exists()
    orgthink.evaluate(resume=run.path, max_total_tokens=100_000, **tracked)
    assert [line["step"] for line in kept(run.path)[:-1]] == [2, 2], "the second episode, and the table"
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    with pytest.raises(UserError, match="pip install wandb"):
        orgthink.train(recipe("ASYNCTHINK"), model=TINY, out=tmp_path / "other", log="wandb")
    assert not (tmp_path / "other").exists()
