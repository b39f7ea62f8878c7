"""A run folder that grows: every whole line is read once, and a resumed run is read again."""

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
from test_view import page_data

from orgthink.cli import main
from orgthink.cli.view import Following
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.episode_json import dump
from orgthink.record.folder import RunFolder
from orgthink.view import growing
from orgthink.view.curves import POINTS
from orgthink.view.growing import Growing

EPISODES = sample.episodes(rounds=1)
TRAINING = {"job": {"settings": {"steps": 50}}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "eval", {"n": 3, "samples": 2, "organizations": {"a": {}, "b": {}}})


@pytest.fixture
def plain(tmp_path: Path) -> RunFolder:
    """The folder of a server: nothing in its settings is looked up."""
    return RunFolder.create(tmp_path / "run", "serve", {"models": []})


def grow(folder: RunFolder, *episodes: Episode) -> None:
    with folder.journal(redo=None) as journal:
        journal.append(*episodes)


def test_rows_that_are_added_appear_once(folder: RunFolder) -> None:
    watched = Growing(folder)
    first = watched.look()
    assert (first["done"], first["total"], first["ended"]) == (0, 12, [])
    grow(folder, *EPISODES[:2])
    second = watched.look(first["number"])
    assert [row["problem"] for row in second["ended"]] == [EPISODES[1].problem.id, EPISODES[0].problem.id]
    assert [row["steps"] for row in second["ended"]] == [critical_path(EPISODES[1]), critical_path(EPISODES[0])]
    quiet = watched.look(second["number"])
    assert quiet["ended"] == [] and "facts" not in quiet
    grow(folder, EPISODES[2])
    third = watched.look(second["number"])
    assert (third["done"], len(third["ended"])) == (3, 1)
    facts = dict(third["facts"])
    assert facts["sampled"] == f"{sum(map(sampled_tokens, EPISODES[:3])):,} tokens" and facts["episodes"] == "3 of 12"
    assert facts[f"{EPISODES[0].organization}, all correct"].endswith(" of 1")
    for row, episode in zip(reversed(watched.look()["ended"]), EPISODES[:3], strict=True):
        packed = watched.episode(row["id"])
        assert packed is not None and packed["episode"]["answer"] == episode.answer
    assert watched.episode("4") is None


def test_half_a_line_is_read_when_it_is_whole(folder: RunFolder) -> None:
    watched = Growing(folder)
    line = dump(EPISODES[0])
    with folder.episodes_file.open("ab", buffering=0) as file:
        file.write(line[:50])
        assert watched.look()["done"] == 0
        file.write(line[50:])
        assert watched.look()["done"] == 1


def test_a_resumed_run_is_read_again(folder: RunFolder) -> None:
    """Resumed with a failed episode, its file is shorter, and may soon be as long as before."""
    grow(folder, *EPISODES[:3])
    watched = Growing(folder)
    before = watched.look()
    folder.episodes_file.write_bytes(b"".join(map(dump, (EPISODES[0], EPISODES[2], EPISODES[3], EPISODES[4]))))
    after = watched.look(before["number"])
    assert after["server"] != before["server"]
    assert [row["problem"] for row in reversed(after["ended"])] == [EPISODES[i].problem.id for i in (0, 2, 3, 4)]


def test_a_long_run_is_read_in_parts(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "BATCH", 2)
    grow(folder, *EPISODES[:3])
    watched = Growing(folder)
    assert [(state["done"], state["behind"]) for state in (watched.look(), watched.look())] == [(2, True), (3, False)]


def test_an_unreadable_line_is_reported_and_skipped(folder: RunFolder) -> None:
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
    assert (state["done"], state["total"], dict(state["facts"])["tokens trained on"]) == (3, 50, "15")
    assert state["curves"] == {
        "reward": [(1, 0.5)],
        "seconds: rollout": [(1, 2.0), (2, 3.0)],
        "seconds: train": [(1, 1.0)],
        "trained tokens": [(1, 10.0), (2, 5.0)],
    }


def test_the_page_of_a_training_has_the_curves_of_the_live_page_and_its_settings(tmp_path: Path) -> None:
    settings = {"recipe": "mine", "job": {"model": "tiny", "settings": {"steps": 2, "rollout": {"task": "echo"}}}}
    folder = RunFolder.create(tmp_path / "run", "train", settings)
    lines = [{"step": i, "reward": i / 2, "format_errors": {"no_answer": 0.5}, "loss": None} for i in (1, 2)]
    (folder.path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    grow(folder, *(replace(episode, step=1) for episode in EPISODES[:2]))
    assert main(["view", str(folder.path)]) == 0
    data = page_data((folder.path / "view.html").read_text())
    live = Growing(folder).look()["curves"]
    assert data["curves"] == json.loads(json.dumps(live)) and live["reward"] == [(1, 0.5), (2, 1.0)]
    assert live["format errors: no answer"] == [(1, 0.5), (2, 0.5)]
    shown = data["conditions"]
    assert [shown[name] for name in ("recipe", "model", "task", "steps")] == ["mine", "tiny", "echo", "2"]


def test_the_page_of_a_fine_tuning_has_its_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(tmp_path / "run", json.dumps({"step": 1, "loss": 2.0}))
    assert main(["view", str(folder.path)]) == 0
    data = page_data((folder.path / "view.html").read_text())
    assert data["curves"] == {"loss": [[1, 2.0]]} and data["episodes"] == data["summary"] == []
    for asked in (["--transcript"], ["--step", "1"], ["--episode", "x"]):
        assert main(["view", str(folder.path), *asked]) == 2
    assert "only rollouts are recorded" in capsys.readouterr().err
    begun = RunFolder.create(tmp_path / "begun", "train", {})
    assert main(["view", str(begun.path)]) == 2
    assert "begun has no episodes: no step has ended" in capsys.readouterr().err


@pytest.mark.parametrize("settings", [7, {"job": 7}, {"job": {"settings": 7}}, {"job": {"settings": {"rollout": 7}}}])
def test_a_training_with_unknown_settings_is_drawn(tmp_path: Path, settings: Any) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", settings)
    (folder.path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    assert main(["view", str(folder.path)]) == 0
    assert "curves" in (folder.path / "view.html").read_text()


@pytest.mark.parametrize("steps", [POINTS, 5 * POINTS - 3])
def test_a_long_curve_has_few_points_and_the_newest(tmp_path: Path, steps: int) -> None:
    folder = training(tmp_path / "run", *(json.dumps({"step": i, "loss": i}) for i in range(1, steps + 1)))
    watched = Growing(folder)
    while (state := watched.look())["behind"]:
        continue
    points = state["curves"]["loss"]
    assert len(points) <= POINTS
    assert points[-1] == (steps, steps)
    assert all(step == value for step, value in points)


@pytest.mark.parametrize(
    "settings",
    [{}, {"n": [0], "samples": 10**12, "organizations": {}}, {"n": 1, "samples": 1, "organizations": 7}, [], "n"],
)
def test_settings_without_a_total(folder: RunFolder, settings: Any) -> None:
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


def test_the_server_answers_only_browsers_of_this_machine(plain: RunFolder) -> None:
    """Another `Host` is DNS rebinding."""
    grow(plain, replace(EPISODES[-1], problem=replace(EPISODES[-1].problem, id=sample.HOSTILE)))
    with following(plain) as server, httpx2.Client(base_url=server.url, trust_env=False) as client:
        assert server.server_address[0] == "127.0.0.1"
        policy = client.get("/").headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
        assert client.get("/rows").json()["done"] == 1
        assert client.get("/rows", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/rows", headers={"host": f"localhost:{server.server_port}"}).status_code == 200
        assert "access-control-allow-origin" not in client.get("/rows").headers
        assert client.get("/rows/1").json()["episode"]["problem"] == sample.HOSTILE
        assert client.get("/all").text == "<p>everything"
        for path in ("/rows/2", "/rows/x", "/rows/", "/../config.json", "/config.json", "/rows/" + "9" * 5_000):
            assert client.get(path).status_code == 404
        assert client.post("/rows").status_code == 501


def test_a_slow_reader_delays_no_other(plain: RunFolder) -> None:
    with following(plain) as server, socket.create_connection(("127.0.0.1", server.server_port), timeout=15) as slow:
        server.everything = lambda: "x" * 30_000_000
        slow.sendall(f"GET /all HTTP/1.1\r\nHost: localhost:{server.server_port}\r\n\r\n".encode())
        assert slow.recv(1) == b"H"
        assert httpx2.get(f"{server.url}rows", trust_env=False).status_code == 200


@pytest.mark.thorough
def test_the_command_runs_until_it_is_interrupted(plain: RunFolder) -> None:
    grow(plain, EPISODES[0])
    command = [sys.executable, "-m", "orgthink", "view", str(plain.path), "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split(" at ")[1].split()[0]
            with httpx2.Client(base_url=url, trust_env=False) as client:
                assert client.get("/rows").json()["done"] == 1
                assert EPISODES[0].problem.id in client.get("/all").text
        finally:
            process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert not (plain.path / "view.html").exists()


def test_a_taken_port_is_one_line(plain: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(plain.path), "--serve", "--port", str(port)]) == 2
    assert f"nothing can listen at 127.0.0.1, port {port}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--out x.html", "--transcript", "--episode x"])
def test_options_that_exclude_serve(plain: RunFolder, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(plain.path), "--serve", *option.split()]) == 2
    assert option.split()[0] in capsys.readouterr().err
