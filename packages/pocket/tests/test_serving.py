"""`orgthink serve` as a process: a shipped model answers, a file adds another, and SIGTERM lets both finish."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2

from orgthink.cli import main
from orgthink.record.folder import RunFolder
from orgthink.tasks import task_named

NAME = "asyncthink-pocket-organizer"


def test_a_shipped_model_is_served_with_the_budget_that_it_was_trained_for(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "orgthink", "serve", "--model", "pocket-organizer", "--port", "0"]
    command += ["--organizations", "asyncthink", "brief=sequential", "--models", "brief=pocket-base"]
    server = subprocess.Popen(
        [*command, "--out", str(out)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"ORGTHINK_API_KEY": "secret"},
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.match(rf"{NAME}, brief-pocket-base at (http://127.0.0.1:\d+/v1)", line)
        assert found is not None
        with httpx2.Client(base_url=found[1], timeout=60, headers={"authorization": "Bearer secret"}) as client:
            problem = {"role": "user", "content": "countdown 2 3 6 9 12 = 21"}
            reply, brief = (
                client.post(
                    "/chat/completions",
                    json={"model": model, "messages": [problem], "temperature": 0, "max_tokens": most},
                ).json()
                for model, most in ((NAME, 9999), ("brief-pocket-base", 64))
            )
            drawn = [
                client.post(
                    "/chat/completions",
                    json={"model": NAME, "messages": [problem], "seed": seed},
                ).json()["choices"][0]["message"]["content"]
                for seed in (7, 7, 8, 9, 10)
            ]
            response = client.post(
                "/responses",
                json={"model": NAME, "input": problem["content"], "temperature": 0},
            ).json()
            listed = client.get(found[1].replace("/v1", "/rows")).json()["ended"]
        assert drawn[0] == drawn[1] and len(set(drawn)) > 1, "a seed is of the whole tree"
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()
    question = task_named("countdown-mini").problems("test", 0)
    task, graded = task_named("countdown-mini"), next(p for p in question if p.data["target"] == 21)
    assert graded.data["numbers"] == [2, 3, 6, 9, 12]
    assert task.grade(graded, reply["choices"][0]["message"]["content"]).all_correct
    assert reply["orgthink"]["agents"] > 1
    assert brief["choices"][0]["finish_reason"] == "length" and brief["usage"]["completion_tokens"] == 64
    first, second, *others = RunFolder.open(out).episodes()
    assert len(others) == 6 == len(listed) - 2 and {row["problem"] for row in listed} == {problem["content"]}
    assert response["output"][-1]["content"][0]["text"] == reply["choices"][0]["message"]["content"]
    assert first.capacity == 4 and second.organization == "brief"
    assert main(["view", str(out)]) == 0
