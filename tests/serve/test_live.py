"""The live page of `orgthink serve`: what it learns of episodes at work and of those that ended, and who may see it."""

from __future__ import annotations

import asyncio
import json
import random
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
from random_episodes import Program, random_program, script_of
from serve.test_serve import Server, organizer, serving

from orgthink.engines.scripted import ScriptedEngine
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.agent import Agent
from orgthink.runtime.clock import run_virtual
from orgthink.serve.live import RUNNING, Running
from orgthink.serve.question import BEGINNING
from orgthink.util import redaction
from orgthink.view import live_page
from orgthink.view.pack import pack

PROBLEM = Problem("1", "t", "main process")


async def listed(server: Server, after: int = 0) -> dict[str, Any]:
    return (await server.client.get(f"/rows?after={after}")).json()


async def packed(server: Server, name: str) -> dict[str, Any]:
    return (await server.client.get(f"/rows/{name}")).json()


def test_an_episode_is_a_picture_at_every_moment() -> None:
    """Nested forks, failing, forgetful and waiting workers: every step is drawn once, whenever one looks."""
    rng = random.Random(3)
    assert sum(looks_at(random_program(rng), rng) for _ in range(15)) > 250


def looks_at(program: Program, rng: random.Random) -> int:
    """Look at an episode after everything that happens in it. Returns how often."""
    seen: list[dict[str, Any]] = []

    def look(kind: str, agent: Agent, text: str) -> None:
        packed = running.packed()
        assert packed is not None
        episode = json.loads(json.dumps(packed(), allow_nan=False))["episode"]
        seen.append(episode)
        drawn = sum(last - first for one in episode["agents"] for _, first, last, *_ in one["bars"])
        assert drawn == running.row["sampled"] == sum(agent.steps for agent in running._agents.values())
        assert episode["stop"] == RUNNING

    running = Running(PROBLEM, "add", "asyncthink", 3, look)
    engine = ScriptedEngine(script_of(program, rng))
    limits = Limits(capacity=rng.choice((2, 3, 99)), depth=2)
    backing = Backing(engine, Sampling(10_000))
    episode = run_virtual(attempt(AsyncThink(), PROBLEM, backing, limits=limits, watch=running.watch))
    (whole,) = pack([episode], {})["episodes"]
    bars = {agent["id"]: agent["bars"] for agent in whole["agents"]}
    for agent in seen[-1]["agents"]:  # who never found a place is in the record only
        assert agent["bars"] == bars.pop(agent["id"])
    assert not any(bars.values())
    return len(seen)


async def test_an_episode_is_seen_while_it_runs_and_afterwards(tmp_path: Path) -> None:
    def rule(text: str) -> str:
        return organizer(text) if "How many?" in text else "part " * 200 + "<RETURN> three </RETURN>"

    async with serving(tmp_path, rule, seconds=0.002) as server:
        asking = asyncio.create_task(server.ask("asyncthink-rule"))
        while not (await listed(server))["running"]:
            await asyncio.sleep(0.01)
        (row,) = (await listed(server))["running"]
        while not (now := await listed(server))["running"][0]["sampled"]:
            await asyncio.sleep(0.01)
        assert dict(now["facts"])["sampled"] == f"{now['running'][0]['sampled']} tokens"
        while len((now := await packed(server, row["id"]))["episode"]["agents"]) < 2:
            await asyncio.sleep(0.01)
        worker = now["episode"]["agents"][1]
        while "part" not in now["texts"][worker["spans"][-1][1]]:
            await asyncio.sleep(0.01)
            worker = (now := await packed(server, row["id"]))["episode"]["agents"][1]
        assert row["stop"] == worker["status"] == now["episode"]["stop"] == RUNNING and worker["bars"]
        await asking
        after = await listed(server)
        assert after["running"] == [] and after["number"] == 1 and dict(after["facts"])["ended"] == "1"
        (ended,) = after["ended"]
        assert (ended["id"], ended["stop"], ended["problem"]) == (row["id"], "done", "How many?")
        assert (await listed(server, after=1))["ended"] == []
        (episode,) = server.folder.episodes()
        data = pack([episode], {})
        (whole,) = data["episodes"]
        assert await packed(server, row["id"]) == json.loads(
            json.dumps({"episode": whole | {"id": row["id"], "problem": "How many?"}, "texts": data["texts"]})
        )


async def test_one_whose_client_left_is_listed_as_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: "word " * 9_000, seconds=0.001) as server:
        asking = asyncio.create_task(server.ask())
        while not server.engine.live:
            await asyncio.sleep(0.01)
        asking.cancel()
        while (now := await listed(server))["running"]:
            await asyncio.sleep(0.01)
    (row,) = now["ended"]
    assert row["stop"] == "cancelled" and dict(now["facts"])["left by their client"] == "1"


async def test_only_the_last_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.episodes.board._ended = type(server.episodes.board._ended)(maxlen=3)
        for n in range(5):
            await server.ask(messages=[{"role": "user", "content": f"question {n}"}])
        now = await listed(server)
        assert [row["problem"] for row in now["ended"]] == [f"question {n}" for n in (4, 3, 2)] and now["number"] == 5
        for row in now["ended"]:
            found = await packed(server, row["id"])
            assert found["texts"][found["episode"]["question"]] == row["problem"]


async def test_the_listing_of_a_long_question_is_short(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.ask(messages=[{"role": "user", "content": "a\nb" + " very" * 10_000}])
        (row,) = (await listed(server))["ended"]
    assert len(row["problem"]) == BEGINNING and row["problem"].startswith("a b very")


def test_the_page_may_run_its_own_script_and_ask_its_own_server() -> None:
    page = live_page("title", {})
    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    style = re.search("<style>(.*?)</style>", page.text, re.S)
    script = page.text.rpartition("<script>")[2].partition("</script>")[0]
    assert style is not None
    hashes = [f"'sha256-{b64encode(sha256(part.encode()).digest()).decode()}'" for part in (script, style[1])]
    assert (rules.pop("script-src"), rules.pop("style-src")) == tuple(hashes)
    assert (rules.pop("connect-src"), rules.pop("img-src")) == ("'self'", "data:")
    assert rules == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    outside = re.findall(r"https?://[^\s\"'`]+|@import|innerHTML|insertAdjacentHTML", page.text)
    assert set(outside) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}, "namespaces"


async def test_the_page_asks_for_the_key_and_holds_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path, key="sesame") as server:
        page = await server.client.get("/")
        assert page.status_code == 200 and '"locked":true' in page.text and "sesame" not in page.text
        assert page.headers["content-security-policy"] == live_page("orgthink serve", {}, locked=True).policy
        for path in ("/rows", "/rows/x"):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "orgthink-key=sesame"}):
                assert (await server.client.get(path, headers=headers)).status_code == 401
            assert (await server.client.get(f"{path}?key=sesame")).status_code == 401
        found = await server.client.get("/rows", headers={"authorization": "Bearer sesame"})
        assert found.status_code == 200 and found.headers["cache-control"] == "no-store"


async def test_without_a_key_the_page_is_for_this_machine(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert '"locked":false' in (await server.client.get("/")).text
        for path in ("/", "/rows", "/rows/x"):
            assert (await server.client.get(path, headers={"host": "evil.example"})).status_code == 400


async def test_a_server_without_the_page(tmp_path: Path) -> None:
    async with serving(tmp_path, page=False) as server:
        await server.ask()
        assert [(await server.client.get(path)).status_code for path in ("/", "/rows", "/rows/x")] == [404] * 3


async def test_what_is_not_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        missing = await server.client.get("/rows/nobody")
        assert missing.status_code == 404 and missing.json()["error"]["code"] == "no_episode"
        for after in ("x", "-1", "1.5", "²", "9" * 100):
            assert (await server.client.get("/rows", params={"after": after})).status_code == 400
        assert (await server.client.post("/rows", json={})).status_code == 405


async def test_no_secret_of_the_server_is_on_the_page(tmp_path: Path) -> None:
    redaction.conceal("zebra-quill-battery")
    hidden = [{"role": "user", "content": "Is it zebra-quill-battery?"}]
    async with serving(tmp_path, lambda text: "<ANSWER> zebra-quill-battery </ANSWER>") as server:
        await server.ask(messages=hidden)
        found = await server.client.get("/rows")
        (row,) = found.json()["ended"]
        whole = await server.client.get(f"/rows/{row['id']}")
    assert "zebra-quill-battery" not in found.text + whole.text and redaction.MARK in found.text


async def test_a_record_that_is_gone_is_one_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.ask()
        (row,) = (await listed(server))["ended"]
        server.folder.episodes_file.unlink()
        reply = await server.client.get(f"/rows/{row['id']}")
        assert reply.status_code == 404 and reply.json()["error"]["code"] == "no_episode"


def test_a_so_far_is_the_record_at_the_end() -> None:
    agents: list[Agent] = []
    engine = ScriptedEngine(script_of(random_program(random.Random(1)), random.Random(1)))

    def watch(kind: str, agent: Agent, text: str) -> None:
        if kind == "start":
            agents.append(agent)

    episode = run_virtual(attempt(AsyncThink(), PROBLEM, Backing(engine, Sampling(10_000)), watch=watch))
    assert [agent.trace_so_far() for agent in agents] == list(episode.traces)
