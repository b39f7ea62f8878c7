"""Arenas and searches: links to the runs of others among their own, and pictures that are links, pipes or a style."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within
from attacks.test_run_folders import ENDS, OWN, snapshot

from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.files import locked, write_whole

NAME = "frontier-1x.svg"
SAME = "the target is unchanged"


def draw(folder: Path) -> None:
    """Write a picture as an arena does."""
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot
    from orgthink_arena.contest.plots import save

    save({"frontier-1x": lambda rows: pyplot.figure(figsize=(1, 1))}, {"frontier-1x": []}, folder, "arena")


@each(
    Attack("a picture of an arena is a link to a file of the user's", OWN, SAME, os.symlink),
    Attack("a picture of an arena is a hard link to a file of the user's", OWN, SAME, os.link),
)
def test_a_picture_that_is_a_link(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "thesis").write_text("mine")
    attack.given(tmp_path / "thesis", tmp_path / "run" / NAME)
    draw(tmp_path / "run")
    assert (tmp_path / "thesis").read_text() == "mine" and b"<svg" in (tmp_path / "run" / NAME).read_bytes()


@each(Attack("a picture of an arena is a pipe", ENDS, "one line, exit code 2"))
def test_a_picture_that_is_a_pipe(attack: Attack, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(UserError, match="is a pipe or a device"):
        within(60.0, lambda: draw(tmp_path))


STYLE = "Pictures have orgthink's own style, whatever lies in the current folder."


@each(Attack("a matplotlibrc in the current folder sets texts by LaTeX", STYLE, "it is ignored"))
def test_a_style_of_the_current_folder(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfigure.facecolor: red\n")
    code = f"from pathlib import Path; from attacks.test_arenas import draw; draw(Path({str(tmp_path)!r}))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert b"#ff0000" not in (tmp_path / NAME).read_bytes()


def resumed(run: Path) -> None:
    with RunFolder.open(run / "evaluations" / "1").journal():
        raise AssertionError("it writes")


@each(
    Attack("the evaluations of a run are a link, one of them is begun", OWN, "one line; nothing is made there",
           lambda run: RunFolder.create(run / "evaluations" / "2", "eval", None)),
    Attack("the evaluations of a run are a link, one of them is resumed", OWN, "one line; " + SAME, resumed),
    Attack("the evaluations of a run are a link, a file is written there", OWN, "one line; " + SAME,
           lambda run: write_whole(run / "evaluations" / "1" / "config.json", b"")),
)  # fmt: skip
def test_a_link_to_runs_of_others(attack: Attack, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "theirs" / "1", "eval", None)
    run = RunFolder.create(tmp_path / "run", "arena", None).path
    (run / "evaluations").symlink_to(tmp_path / "theirs")
    before = sorted((tmp_path / "theirs").rglob("*")), snapshot(tmp_path / "theirs")
    with locked(run), pytest.raises(UserError, match=r"evaluations is a link"):
        attack.given(run)
    assert (sorted((tmp_path / "theirs").rglob("*")), snapshot(tmp_path / "theirs")) == before


@each(Attack("the run folder itself is named by a link", OWN, "it is written: the user named it"))
def test_a_link_that_the_user_names(attack: Attack, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "arena", None)
    (tmp_path / "short").symlink_to(tmp_path / "run")
    with locked(tmp_path / "short"):
        RunFolder.create(tmp_path / "short" / "evaluations" / "1", "eval", None)
    assert (tmp_path / "run" / "evaluations" / "1" / "config.json").exists()
