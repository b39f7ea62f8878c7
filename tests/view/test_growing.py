"""A run folder while it grows: every whole line is read once, and a run that begins anew is read anew."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sample

from orgthink.cli import main
from orgthink.cli.following import Following
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.episode_json import dump
from orgthink.record.folder import RunFolder
from orgthink.view import growing
from orgthink.view.growing import POINTS, Growing

EPISODES = sample.episodes(rounds=1)
TRAINING = {"job": {"settings": {"steps": 50}}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "eval", {"n": 3, "samples": 2, "organizations": {"a": {}, "b": {}}})


@pytest.fixture
def plain(tmp_path: Path) -> RunFolder:
    """Of a server: nothing in its settings is looked up."""
    return RunFolder.create(tmp_path / "run", "serve", {"models": []})


def grow(folder: RunFolder, *episodes: Episode) -> None:
    with folder.journal(redo=None) as journal:
        journal.append(*episodes)


def test_what_is_added_appears_once(folder: RunFolder) -> None:
    watched = Growing(folder)
    first = watched.look()
    assert (first["done"], first["total"], first["recent"]) == (0, 12, [])
    grow(folder, *EPISODES[:2])
    second = watched.look(first["version"])
    assert [row["id"] for row in second["recent"]] == [EPISODES[1].id, EPISODES[0].id]
    assert watched.look(second["version"]) == {"version": second["version"], "behind": False}
    grow(folder, EPISODES[2])
    third = watched.look(second["version"])
    assert (third["done"], third["recent"][0]["number"]) == (3, 3)
    tallies = {row["organization"]: row for row in third["organizations"]}
    for episode in EPISODES[:3]:
        row = tallies[episode.organization]
        assert (row["episodes"], row["tokens"]) == (1, sampled_tokens(episode))
        assert row["steps"] == critical_path(episode)
    assert [watched.episode(number) for number in (1, 2, 3, 4)] == [*EPISODES[:3], None]


def test_half_a_line_is_read_when_it_is_whole(folder: RunFolder) -> None:
    watched = Growing(folder)
    line = dump(EPISODES[0])
    with folder.episodes_file.open("ab", buffering=0) as file:
        file.write(line[:50])
        assert watched.look()["done"] == 0
        file.write(line[50:])
        assert watched.look()["done"] == 1


def test_a_run_that_begins_anew_is_read_anew(folder: RunFolder) -> None:
    """Resumed with a failed episode, its file is shorter, and may soon be as long as before."""
    grow(folder, *EPISODES[:3])
    watched = Growing(folder)
    before = watched.look()
    folder.episodes_file.write_bytes(b"".join(map(dump, (EPISODES[0], EPISODES[2], EPISODES[3], EPISODES[4]))))
    after = watched.look(before["version"])
    assert after["version"].split("-")[0] != before["version"].split("-")[0]
    assert [row["id"] for row in reversed(after["recent"])] == [EPISODES[i].id for i in (0, 2, 3, 4)]


def test_a_long_run_is_read_in_parts(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "BATCH", 2)
    grow(folder, *EPISODES[:3])
    watched = Growing(folder)
    assert [(state["done"], state["behind"]) for state in (watched.look(), watched.look())] == [(2, True), (3, False)]


def test_a_line_that_is_no_episode_is_named_and_passed_over(folder: RunFolder) -> None:
    folder.episodes_file.write_bytes(b"{}\n" + dump(EPISODES[0]))
    state = Growing(folder).look()
    assert state["done"] == 1
    assert state["trouble"].startswith("episodes.jsonl, byte 0: not an episode")


def training(path: Path, *lines: Any) -> RunFolder:
    folder = RunFolder.create(path, "train", TRAINING)
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_curves_are_the_numbers_of_the_metrics(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "reward": 0.5, "seconds": {"rollout": 2.0, "train": 1}, "trained_tokens": 10, "name": "x"},
        {"step": 2, "reward": None, "seconds": {"rollout": 3.0, "deep": {"er": 1}}, "trained_tokens": 5, "ok": True},
    ]
    folder = training(
        tmp_path / "run", *map(json.dumps, lines), '{"step": 3, "reward": NaN, "big": 1' + "0" * 400 + "}"
    )
    state = Growing(folder).look()
    assert (state["done"], state["total"], state["seconds"], state["trained"]) == (3, 50, 6.0, 15)
    assert state["curves"] == {
        "reward": [(1, 0.5)],
        "seconds: rollout": [(1, 2.0), (2, 3.0)],
        "seconds: train": [(1, 1.0)],
        "trained tokens": [(1, 10.0), (2, 5.0)],
    }


@pytest.mark.parametrize("steps", [POINTS, POINTS + 1, 5 * POINTS - 3])
def test_a_long_curve_has_few_points_and_always_the_newest(tmp_path: Path, steps: int) -> None:
    folder = training(tmp_path / "run", *(json.dumps({"step": i, "loss": i}) for i in range(1, steps + 1)))
    watched = Growing(folder)
    while (state := watched.look())["behind"]:
        pass
    points = state["curves"]["loss"]
    assert len(points) <= POINTS
    assert points[-1] == (steps, steps)
    assert all(step == value for step, value in points)


@pytest.mark.parametrize(
    "settings",
    [{}, {"n": [0], "samples": 10**12, "organizations": {}}, {"n": 1, "samples": 1, "organizations": 7}, [], "n"],
)
def test_settings_that_tell_no_total(folder: RunFolder, settings: Any) -> None:
    config = json.loads((folder.path / "config.json").read_text())
    (folder.path / "config.json").write_text(json.dumps(config | {"settings": settings}))
    assert Growing(RunFolder.open(folder.path)).look()["total"] is None


@contextmanager
def following(folder: RunFolder, port: int = 0) -> Iterator[Following]:
    with Following(folder, port, lambda: "<p>everything") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_the_server_answers_browsers_of_this_machine_only(plain: RunFolder) -> None:
    """Another host in a request is a page from elsewhere whose name leads here."""
    grow(plain, replace(EPISODES[-1], problem=replace(EPISODES[-1].problem, id=sample.HOSTILE)))
    with following(plain) as server, httpx2.Client(base_url=server.url, trust_env=False) as client:
        assert server.server_address[0] == "127.0.0.1"
        page = client.get("/")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
        assert client.get("/look").json()["done"] == 1
        assert client.get("/look", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/look", headers={"host": f"localhost:{server.server_port}"}).status_code == 200
        assert "access-control-allow-origin" not in client.get("/look").headers
        opened = client.get("/episode?number=1")
        assert opened.text.startswith("<!doctype html>") and len(opened.text.split("<script")) == 3
        assert client.get("/all").text == "<p>everything"
        for path in ("/episode?number=2", "/episode?number=x", "/episode", "/../config.json", "/config.json"):
            assert client.get(path).status_code == 404
        assert client.post("/look").status_code == 501


def test_the_command_follows_until_it_is_interrupted(plain: RunFolder) -> None:
    grow(plain, EPISODES[0])
    command = [sys.executable, "-m", "orgthink", "view", str(plain.path), "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split(" at ")[1].split()[0]
            with httpx2.Client(base_url=url, trust_env=False) as client:
                assert client.get("/look").json()["done"] == 1
                assert EPISODES[0].problem.id in client.get("/all").text
        finally:
            process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert not (plain.path / "view.html").exists()


def test_a_port_that_is_taken_is_one_line(plain: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(plain.path), "--serve", "--port", str(port)]) == 2
    assert f"nothing can listen at 127.0.0.1, port {port}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--out x.html", "--perfetto x.json", "--transcript", "--episode x"])
def test_what_does_not_go_with_serve(plain: RunFolder, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(plain.path), "--serve", *option.split()]) == 2
    assert option.split()[0] in capsys.readouterr().err
