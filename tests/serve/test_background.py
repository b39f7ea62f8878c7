"""Responses in the background: fetched later, followed again from an event, ended, kept over a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("uvicorn")
from serve.test_responses_interface import PATH, ask
from serve.test_serve import Server, organizer, serving

from orgthink.engines.engine import EngineError
from orgthink.record.episode import StopReason
from orgthink.serve import stream
from orgthink.serve.background import LONGEST_NAME
from orgthink.serve.responses import Json

WORDS = "word " * 5_000


def sent(text: str) -> list[Json]:
    """The events of a stream, without comments."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [httpx2.Response(200, content=block.partition("\ndata: ")[2].encode()).json() for block in blocks]


async def fetched(server: Server, name: str, **query: Any) -> httpx2.Response:
    return await server.client.get(f"{PATH}/{name}", params=query)


async def ended(server: Server, name: str) -> Json:
    """The response of a name, when it has ended."""
    while (found := (await fetched(server, name)).json())["status"] == "in_progress":
        await asyncio.sleep(0.01)
    return found


async def sampling(server: Server, most: int = 0) -> None:
    """Wait until so many tokens are sampled."""
    while server.engine.sampled <= most:
        await asyncio.sleep(0.01)


async def test_a_response_is_fetched_later(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer) as server:
        begun = (await ask(server, background=True, store=True, metadata={"run": "7"})).json()
        assert begun["status"] == "in_progress" and begun["output"] == []
        last = await ended(server, begun["id"])
        whole = (await ask(server)).json()
    _, episode = sorted(server.folder.episodes(), key=lambda one: one.id == last["orgthink"]["episode_id"])
    assert episode.answer == "three" == last["output"][-1]["content"][0]["text"] and last["status"] == "completed"
    assert {"background": True, "store": True, "metadata": {"run": "7"}}.items() <= last.items()
    assert (whole["background"], whole["store"]) == (False, False)
    assert last["usage"] == whole["usage"] and last["output"][0]["summary"] == whole["output"][0]["summary"]


async def test_the_events_of_a_response_are_followed_again_from_any_number(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer) as server:
        first = sent((await ask(server, background=True, stream=True)).text)
        name = first[0]["response"]["id"]
        assert [one["sequence_number"] for one in first] == list(range(len(first)))
        assert first[-1]["response"] == (await fetched(server, name)).json()
        for after in (0, 3, len(first) - 2, len(first) - 1, len(first) + 5):
            again = sent((await fetched(server, name, stream="true", starting_after=after)).text)
            assert again == first[after + 1 :]
        assert sent((await fetched(server, name, stream="true")).text) == first


async def test_a_response_goes_on_without_its_client_who_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: WORDS[:1_000], seconds=0.001) as server:
        body = {"model": "sequential-rule", "stream": True, "background": True, "input": "How many?"}
        seen = ""
        async with server.client.stream("POST", PATH, json=body) as response:
            async for part in response.aiter_text():
                seen += part
                if "reasoning_summary_text.delta" in seen and seen.endswith("\n\n"):
                    break
        before = sent(seen)
        name, number = before[0]["response"]["id"], before[-1]["sequence_number"]
        assert (await fetched(server, name)).json()["status"] == "in_progress"
        after = sent((await fetched(server, name, stream="true", starting_after=number)).text)
        assert server.episodes.counts.left == 0
    both = [*before, *after]
    assert [one["sequence_number"] for one in both] == list(range(len(both)))
    assert both[-1]["type"] == "response.completed"
    said = "".join(one["delta"] for one in both if one["type"] == "response.reasoning_summary_text.delta")
    assert said.count("word") == 200


async def test_a_quiet_response_keeps_its_stream_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "QUIET", 0.02)
    async with serving(tmp_path, lambda text: "<ANSWER> three </ANSWER>", seconds=0.1) as server:
        text = (await ask(server, "sequential-rule", background=True, stream=True)).text
        name = sent(text)[0]["response"]["id"]
        again = (await fetched(server, name, stream="true")).text
    assert ": working\n\n" in text and ": working" not in again and sent(text) == sent(again)


async def test_a_client_ends_a_response(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: WORDS, seconds=0.001) as server:
        name = (await ask(server, background=True)).json()["id"]
        following = asyncio.create_task(fetched(server, name, stream="true"))
        await sampling(server, 20)
        over = (await server.client.post(f"{PATH}/{name}/cancel")).json()
        now = server.engine.sampled
        last = sent((await following).text)[-1]
        assert (over["status"], over["error"], over["id"]) == ("cancelled", None, name)
        assert (last["type"], last["response"]) == ("response.incomplete", over)
        assert over["output"][0]["status"] == "incomplete" and "word" in over["output"][0]["summary"][0]["text"]
        assert (
            (await server.client.post(f"{PATH}/{name}/cancel")).json() == over == (await fetched(server, name)).json()
        )
        await asyncio.sleep(0.05)
        assert server.engine.sampled == now < 5_000, "ending stops the tokens"
    (episode,) = server.folder.episodes()
    assert episode.stop == StopReason.CANCELLED


async def test_to_end_what_has_ended_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        last = await ended(server, (await ask(server, "sequential-rule", background=True)).json()["id"])
        assert (await server.client.post(f"{PATH}/{last['id']}/cancel")).json() == last
    assert last["status"] == "completed"


async def test_the_next_server_has_the_responses_of_the_last(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer) as server:
        first = sent((await ask(server, background=True, stream=True)).text)
        name = first[0]["response"]["id"]
        other = (await ask(server, background=True)).json()["id"]
    async with serving(tmp_path) as server:
        assert (await fetched(server, name)).json() == first[-1]["response"]
        assert sent((await fetched(server, name, stream="true", starting_after=4)).text) == first[5:]
        assert (await fetched(server, other)).json()["status"] == "completed", "the end of a server waits for its end"
        assert server.engine.requests == 0


@pytest.mark.parametrize("whole", [1, 2, 7])
async def test_a_response_whose_server_was_killed_has_failed(tmp_path: Path, whole: int) -> None:
    """Its file ends within an event."""
    async with serving(tmp_path, organizer) as server:
        first = sent((await ask(server, background=True, stream=True)).text)
    name = first[0]["response"]["id"]
    file = server.folder.path / "responses" / f"{name}.sse"
    events = file.read_bytes().split(b"\n\n")
    file.write_bytes(b"\n\n".join(events[: whole + 1])[:-5])
    async with serving(tmp_path) as server:
        for _ in range(2):
            last = (await fetched(server, name)).json()
            assert last["status"] == "failed" and last["error"]["code"] == "server_error"
            assert "the server ended before this response did: send the request again" in last["error"]["message"]
        again = sent((await fetched(server, name, stream="true")).text)
        assert again[:-1] == first[:whole] and again[-1]["response"] == last
        assert (again[-1]["type"], again[-1]["sequence_number"]) == ("response.failed", whole)


async def test_a_response_without_any_event_is_none(tmp_path: Path) -> None:
    """A power cut may leave an empty file."""
    name = "resp_" + 48 * "0"
    async with serving(tmp_path) as server:
        (server.folder.path / "responses").mkdir()
        (server.folder.path / "responses" / f"{name}.sse").touch()
        assert (await fetched(server, name)).status_code == 404


STRANGE = ("resp_1", "x" * 5_000, "%00", "..%2F..%2Fconfig", "..", "é", "x" * (LONGEST_NAME - 1))


async def test_responses_that_are_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        other = (await ask(server, "sequential-rule")).json()["id"]
        for name in (*STRANGE, other):
            for reply in (await fetched(server, name), await server.client.post(f"{PATH}/{name}/cancel")):
                error = reply.json()["error"]
                assert reply.status_code in (404, 405) and "\n" not in error["message"], (name, error)
        assert error["message"] == f"there is no response {other!r}: only those with background: true are stored"
        assert error["code"] == "response_not_found"
        name = (await ask(server, "sequential-rule", background=True)).json()["id"]
        for number in ("x", "-1", "9" * 20, ""):
            reply = await fetched(server, name, stream="true", starting_after=number)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "starting_after")


async def test_responses_are_behind_the_key(tmp_path: Path) -> None:
    async with serving(tmp_path, key="sesame") as server:
        assert (await fetched(server, "resp_1")).status_code == 401
        assert (await server.client.post(f"{PATH}/resp_1/cancel")).status_code == 401


async def test_a_response_needs_a_place_like_any_other(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: WORDS, seconds=0.001, most=1) as server:
        name = (await ask(server, background=True)).json()["id"]
        assert (await ask(server, background=True)).status_code == 429
        await server.client.post(f"{PATH}/{name}/cancel")
        assert (await ask(server, "sequential-rule", max_output_tokens=3)).status_code == 200


async def test_a_failed_episode_is_a_failed_response(tmp_path: Path) -> None:
    def fail(text: str) -> str:
        raise EngineError("the model is gone")

    async with serving(tmp_path, fail) as server:
        last = await ended(server, (await ask(server, background=True)).json()["id"])
    assert last["status"] == "failed" and "the model is gone" in last["error"]["message"]
