"""`orgthink serve`: what clients ask for, what is refused, who goes away, and what is kept."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_engine import RuleEngine

pytest.importorskip("uvicorn")
from starlette.applications import Starlette

from orgthink.cli import main
from orgthink.engines.engine import Chunk, ContextFull, Engine, EngineError, FinishReason
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import Billed, CancelSource, Episode, Message, Problem, Sampling, StopReason
from orgthink.record.folder import Journal, RunFolder
from orgthink.runtime import Backing, Limits
from orgthink.runtime.organization import Organization
from orgthink.serve import app as serve_app
from orgthink.serve import chat, responses
from orgthink.serve.app import LARGEST, application
from orgthink.serve.background import Background
from orgthink.serve.episodes import Served, ServedEpisodes
from orgthink.serve.question import RequestError
from orgthink.serve.stream import Lanes
from orgthink.util import redaction, threads

FORKS = "<FORK-1> count </FORK-1> then <JOIN-1>"
ASK = {"messages": [{"role": "user", "content": "How many?"}]}


class Counting(RuleEngine):
    """Counts what it samples."""

    sampled = 0

    async def stream(self, context: Any, sampling: Sampling) -> Any:
        async for chunk in super().stream(context, sampling):
            self.sampled += 1
            yield chunk


class Server(NamedTuple):
    """A server under test."""

    client: httpx2.AsyncClient
    engine: Counting
    episodes: ServedEpisodes
    folder: RunFolder
    app: Starlette
    connections: set[Any]
    """Those that are open."""

    async def ask(self, model: str = "sequential-rule", **more: Any) -> httpx2.Response:
        return await self.client.post("/v1/chat/completions", json={"model": model, **ASK, **more})


def organizer(text: str) -> str:
    """Who is told the question forks; who is not, is a worker."""
    if "How many?" not in text:
        return "<RETURN> three </RETURN>"
    return " so <ANSWER> three </ANSWER>" if "</JOIN" in text.rpartition("How many?")[2] else FORKS


@asynccontextmanager
async def serving(
    folder: Path,
    rule: Callable[[str], str] = lambda text: "I think. <ANSWER> three </ANSWER>",
    *,
    seconds: float = 0.0,
    most: int = 8,
    key: str | None = None,
    page: bool = True,
    other: Engine | None = None,
    capacity: int = 8,
    more: Sequence[Organization] = (),
) -> AsyncIterator[Server]:
    """A server of a rule, or of another engine, with `more` organizations. It goes on in the run of an earlier one."""
    engine = Counting(rule, seconds=seconds)
    default = Backing(other or engine, Sampling(10_000))
    models = {
        f"{one.name}-rule": Served("rule", one, default, {}, Limits(capacity))
        for one in (Sequential(), AsyncThink(), Parallel(), *more)
    }
    place = folder / "run"
    run = RunFolder.open(place) if place.exists() else RunFolder.create(place, "serve", {})
    with run.journal(redo=None) as journal, socket.create_server(("127.0.0.1", 0), backlog=512) as place:
        episodes, background = ServedEpisodes(journal, most), Background(run.path / "responses")
        app = application(models, episodes, background, key=key, page=page)
        server = serve_app.server(app)
        task = asyncio.create_task(server.serve([place]))
        while not server.started:  # its own tasks have begun
            await asyncio.sleep(0)
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        try:
            async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
                yield Server(client, engine, episodes, run, app, server.server_state.connections)
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, 30)
            await background.drain()


def events(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_clients_are_the_first_to_close_idle_connections() -> None:
    """A request to a connection that the server is closing is lost: the client sees a reset."""
    expiry = httpx2.Limits().keepalive_expiry
    assert expiry is not None and serve_app.server(Starlette()).config.timeout_keep_alive > expiry


async def test_an_answer_its_usage_and_its_episode(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer) as server:
        models = (await server.client.get("/v1/models")).json()["data"]
        assert {"id": "asyncthink-rule", "root": "rule"}.items() <= models[1].items()
        reply = (await server.ask("asyncthink-rule")).json()
    (episode,) = server.folder.episodes()
    (choice,) = reply["choices"]
    message = choice.pop("message")
    assert choice == {"index": 0, "finish_reason": "stop", "logprobs": None}
    assert (message["role"], message["content"]) == ("assistant", "three")
    assert message["reasoning"] == message["reasoning_content"]
    assert (
        message["reasoning"].startswith("[organizer] <FORK-1> count") and "[organizer forks 1]" in message["reasoning"]
    )
    steps = [trace.steps for trace in episode.traces]
    assert len(steps) == 2
    used = reply["usage"]
    assert used["completion_tokens"] == sum(steps) == server.engine.sampled
    details = {"orchestration_output_tokens": steps[1], "reasoning_tokens": steps[1]}
    assert used["completion_tokens_details"] == details
    assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]
    assert reply["orgthink"]["episode_id"] == episode.id and reply["orgthink"]["agents"] == 2
    assert main(["view", str(server.folder.path)]) == 0


async def test_lanes_are_streamed_before_the_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer) as server:
        response = await server.ask("asyncthink-rule", stream=True, stream_options={"include_usage": True})
    found = events(response.text)
    deltas = [one["choices"][0]["delta"] for one in found if one["choices"]]
    assert all(delta.get("reasoning") == delta.get("reasoning_content") for delta in deltas)
    reasoning = "".join(delta.get("reasoning", "") for delta in deltas)
    assert "[organizer forks 1]" in reasoning and "[organizer/1] <RETURN> three </RETURN>" in reasoning
    said = [delta["content"] for delta in deltas if delta.get("content")]
    assert said == ["three"] and deltas.index({"content": "three"}) == len(deltas) - 2
    assert found[-1]["choices"] == [] and found[-1]["usage"]["completion_tokens"] == server.engine.sampled


async def test_the_first_lane_arrives_while_the_model_speaks(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: "word " * 5_000, seconds=0.001) as server:
        body = {"model": "sequential-rule", "stream": True, **ASK}
        async with server.client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if "reasoning" in line:
                    break
            assert server.engine.sampled < 100


@pytest.mark.parametrize("stream", [False, True])
async def test_who_goes_away_ends_all_agents(tmp_path: Path, stream: bool) -> None:
    async with serving(tmp_path, lambda text: "word " * 9_000, seconds=0.001) as server:
        body = {"model": "parallel-rule", "stream": stream, **ASK}
        asking = asyncio.create_task(_first_lines(server, body))
        while server.engine.live < 8:
            await asyncio.sleep(0.01)
        if stream:
            await asking
        else:
            asking.cancel()
        for _ in range(1000):
            if server.episodes.running == server.engine.live == 0:
                break
            await asyncio.sleep(0.01)
        assert server.engine.live == 0
        sampled = server.engine.sampled
        await asyncio.sleep(0.05)
        assert server.engine.sampled == sampled and server.episodes.counts.left == 1
        (episode,) = server.folder.episodes()
        assert (episode.stop, episode.cancel) == (StopReason.CANCELLED, CancelSource.OPERATOR)
        assert {trace.cancel for trace in episode.traces} == {CancelSource.OPERATOR} and len(episode.traces) == 9
        assert sampled == server.episodes.counts.sampled == sum(trace.steps for trace in episode.traces)
        assert (await server.client.get("/healthz")).status_code == 200


async def _first_lines(server: Server, body: Mapping[str, Any]) -> None:
    async with server.client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if "reasoning" in line and server.engine.live == 8:
                return


async def counted(server: Server) -> int:
    """Sampled tokens by /metrics."""
    metrics = (await server.client.get("/metrics")).text
    return int(re.search(r"^orgthink_sampled_total (\d+)", metrics, re.MULTILINE)[1])  # type: ignore[index]


async def test_tokens_of_an_episode_that_is_being_stored_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, may_write, append = threading.Event(), threading.Event(), Journal.append

    def slow(journal: Journal, *episodes: Episode) -> int:
        writing.set()
        assert may_write.wait(60)
        return append(journal, *episodes)

    monkeypatch.setattr(threads, "SHORT", -1)
    async with serving(tmp_path, lambda text: "one two <ANSWER> three </ANSWER>") as server:
        monkeypatch.setattr(Journal, "append", slow)
        asking = asyncio.create_task(server.ask())
        while not writing.is_set():
            await asyncio.sleep(0.001)
        meanwhile = await counted(server)
        may_write.set()
        assert (await asking).status_code == 200
        assert meanwhile == server.engine.sampled == await counted(server) > 0


async def test_tokens_of_running_episodes_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: "word " * 9_000, seconds=0.001) as server:
        asking = asyncio.create_task(server.ask())
        while not (before := await counted(server)):
            assert not asking.done(), "not before its end"
        assert 0 < before < 9_000
        asking.cancel()
        while server.engine.live or server.episodes.running:
            await asyncio.sleep(0.01)
        assert await counted(server) == server.engine.sampled >= before


async def test_more_clients_than_places(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: "word " * 300, seconds=0.001, most=3) as server:
        replies = await asyncio.gather(*(server.ask() for _ in range(12)))
        assert sorted(reply.status_code for reply in replies) == [200] * 3 + [429] * 9
        (busy, *_) = (reply for reply in replies if reply.status_code == 429)
        assert busy.headers["retry-after"] == "1" and busy.json()["error"]["type"] == "rate_limit_error"
        assert (await server.ask()).status_code == 200
        metrics = (await server.client.get("/metrics")).text
    assert "orgthink_ended_total 4" in metrics and "orgthink_turned_away_total 9" in metrics


async def test_limits_of_a_client(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: "word " * 300) as server:
        cut = (await server.ask(max_tokens=20)).json()
        both = (await server.ask(max_tokens=20, max_completion_tokens=10)).json()
    assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["completion_tokens"] == 20
    assert both["usage"]["completion_tokens"] == 10


async def test_a_prompt_without_ids_is_not_counted_in_words(tmp_path: Path) -> None:
    """What its server reports counts, else its bytes do: Chinese has no spaces."""

    class Reporting(RuleEngine):
        async def stream(self, context: Any, sampling: Sampling) -> Any:
            yield Chunk(("It is three.",), finish=FinishReason.EOS, billed=Billed(2100))

    turns = [{"role": "user", "content": "七" * 3000}]
    for folder, other, tokens in (("a", None, range(3000, 3100)), ("b", Reporting(str), [2100])):
        async with serving(tmp_path / folder, other=other) as server:
            used = (await server.ask(messages=turns)).json()["usage"]
            body = {"model": "sequential-rule", "input": turns}
            twin = (await server.client.post("/v1/responses", json=body)).json()["usage"]
        assert used["prompt_tokens"] == twin["input_tokens"] and used["prompt_tokens"] in tokens
        assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]


async def test_an_answer_ends_before_a_stop_text(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: "<ANSWER> one two three </ANSWER>") as server:
        reply = (await server.ask(stop=["three", "two"])).json()
    assert reply["choices"][0]["message"]["content"] == "one "


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"verbosity": "low"}, "verbosity"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
    ({"store": True}, "store"),
    ({"best_of": 3}, "best_of"),
    ({"top_k": 5}, "top_k"),
    ({"min_p": 0.1}, "min_p"),
    ({"repetition_penalty": 1.5}, "repetition_penalty"),
    ({"guided_json": {"type": "object"}}, "guided_json"),
    ({"guided_regex": "a+"}, "guided_regex"),
    ({"guided_choice": ["a"]}, "guided_choice"),
    ({"guided_grammar": "root ::= 'a'"}, "guided_grammar"),
    ({"structured_outputs": {"regex": "a+"}}, "structured_outputs"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"stop": ""}, "stop"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": " "}]}, "messages"),
]


async def test_what_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for more, place in REFUSED:
            reply = await server.ask(**more)
            error = reply.json()["error"]
            assert reply.status_code == 400 and error["param"].split(".")[0] == place, error
            assert error["type"] == "invalid_request_error" and "\n" not in error["message"]
        missing = await server.ask("gpt-9")
        assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
        kind = {"content-type": "application/json"}
        for body, status in ((b"{", 400), (b"[1]", 400), (b"[" * 200_000, 400), (b" " * (LARGEST + 1), 413)):
            reply = await server.client.post("/v1/chat/completions", content=body, headers=kind)
            assert reply.status_code == status and reply.json()["error"]["message"]
        form = await server.client.post("/v1/chat/completions", content=b"{}", headers={"content-type": "text/plain"})
        assert form.status_code == 415
        assert (await server.client.get("/v1/models", headers={"host": "evil.example"})).status_code == 400
    assert server.engine.requests == 0


HARMLESS: list[dict[str, Any]] = [
    {name: None for _, name in REFUSED if name != "messages"},
    {"function_call": "auto", "verbosity": "medium", "store": False, "best_of": 1, "n": 1, "tools": []},
    {"top_k": -1, "min_p": 0, "repetition_penalty": 1},
    {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    {"user": "u", "service_tier": "auto", "metadata": {}},
]


@pytest.mark.parametrize("members", HARMLESS)
def test_members_that_want_nothing_are_no_error(members: dict[str, Any]) -> None:
    assert chat.read(json.dumps({"model": "m", **ASK, **members}).encode()).question.model == "m"


TOOLS = "messages with tool calls or their results are not supported by an organization"
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    ("turn", "place", "message"),
    [
        ({"role": "user", "content": [{"type": "text", "text": "What?"}, IMAGE]}, ".content.1", "'image_url'"),
        ({"role": "user", "content": [{"type": "audio\nx"}]}, ".content.0", "type 'audio x' are not"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, ".content.0.text", "valid string"),
        ({"role": "user", "content": None}, ".content", "it must be a text, or a list of parts"),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, ".tool_calls", TOOLS),
        ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, ".function_call", TOOLS),
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, ".role", TOOLS),
        ({"role": "function", "content": "x", "name": "f"}, ".role", TOOLS),
    ],
)
def test_a_refused_turn_is_named_by_its_place_in_the_request(turn: dict[str, Any], place: str, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)) as refused:
        chat.read(json.dumps({"model": "m", "messages": [*ASK["messages"], turn, *ASK["messages"]]}).encode())
    assert refused.value.param == f"messages.1{place}" and str(refused.value).startswith(f"messages.1{place}: ")
    assert "Value error" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_turn_without_tool_calls_may_say_so() -> None:
    turn = {"role": "assistant", "content": "Yes.", "tool_calls": [], "function_call": None, "refusal": None}
    question = chat.read(json.dumps({"model": "m", "messages": [turn, *ASK["messages"]]}).encode()).question
    assert question.conversation == (Message("assistant", "Yes."), Message("user", "How many?"))


@pytest.mark.parametrize(
    ("default", "asked", "roles", "ways"),
    [
        (1.0, 0, {}, "leave temperature out, or ask for a temperature above 0; the operator of the server can set "),
        (0.0, None, {}, ": ask for a temperature above 0; the operator of the server can set "),
        (0.0, 0, {}, ": ask for a temperature above 0; the operator of the server can set "),
        (1.0, None, {"thinker": 0.0}, "answer alike: the operator of the server can set "),
        (1.0, 0, {"thinker": 1.0}, None),
        (0.0, 0.5, {}, None),
    ],
)
def test_a_greedy_vote_is_refused_in_words_for_a_client(
    default: float, asked: float | None, roles: Mapping[str, float], ways: str | None
) -> None:
    engine = RuleEngine(str)
    backed = {name: Backing(engine, Sampling(9, temperature)) for name, temperature in roles.items()}
    served = Served("rule", Parallel(), Backing(engine, Sampling(9, default)), backed, Limits(8))
    sampling = Sampling(9, default if asked is None else asked)
    if ways is None:
        served.require_sampling_noise(sampling)
        return
    with pytest.raises(RequestError, match=re.escape(f"{ways}--sampling thinker.temperature=1")) as refused:
        served.require_sampling_noise(sampling)
    assert (refused.value.status, refused.value.param) == (400, "temperature")


async def test_temperature_0_of_a_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert (await server.ask("parallel-rule", temperature=0)).json()["error"]["param"] == "temperature"
        assert (await server.ask("parallel-rule", temperature=0.1)).status_code == 200
        assert (await server.ask(temperature=0)).status_code == 200


async def test_one_model_and_those_that_are_none(tmp_path: Path) -> None:
    async with serving(tmp_path, key="k") as server:
        locked = await server.client.get("/v1/models/sequential-rule")
        server.client.headers["authorization"] = "Bearer k"
        listed = (await server.client.get("/v1/models")).json()["data"]
        for model in listed:
            assert (await server.client.get(f"/v1/models/{model['id']}")).json() == model
        missing = await server.client.get("/v1/models/meta%2Fllama%0A")
        posted = await server.client.post("/v1/models/sequential-rule")
    assert locked.status_code == 401
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert missing.json()["error"]["message"].startswith("there is no model 'meta/llama': there is sequential-rule, ")
    assert posted.status_code == 405


async def test_a_model_whose_name_has_a_slash(tmp_path: Path) -> None:
    served = Served("rule", Sequential(), Backing(RuleEngine(str), Sampling(9)), {}, Limits(8))
    with RunFolder.create(tmp_path / "run", "serve", {}).journal(redo=None) as journal:
        app = application({"team/careful": served}, ServedEpisodes(journal, 1), Background(tmp_path))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            for name in ("team/careful", "team%2Fcareful"):
                assert (await client.get(f"/v1/models/{name}")).json()["id"] == "team/careful"


async def test_a_path_that_is_none_and_a_method_that_is_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        path = await server.client.post("/v1/completions", json={})
        method = await server.client.get("/v1/chat/completions")
    unknown, other = path.json()["error"], method.json()["error"]
    assert (path.status_code, unknown["code"], unknown["type"]) == (404, "unknown_url", "invalid_request_error")
    assert unknown["message"] == "there is no 'POST /v1/completions' here"
    assert (method.status_code, other["code"], method.headers["allow"]) == (405, "method_not_allowed", "POST")
    assert other["message"] == "there is no 'GET /v1/chat/completions' here: its methods are POST"


async def test_a_key(tmp_path: Path) -> None:
    async with serving(tmp_path, key="secret") as server:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer sécret".encode()}):
            reply = await server.client.get("/v1/models", headers=headers)
            assert reply.status_code == 401 and "secret" not in reply.text
        assert (await server.ask()).status_code == 401
        good = await server.client.get("/v1/models", headers={"authorization": "Bearer secret"})
        assert good.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_fails(tmp_path: Path, stream: bool) -> None:
    def fail(text: str) -> str:
        raise EngineError("the model is gone")

    async with serving(tmp_path, fail) as server:
        reply = await server.ask(stream=stream)
    text = reply.text if stream else reply.json()["error"]["message"]
    assert "the model is gone" in text and reply.status_code == (200 if stream else 502)
    assert "[DONE]" not in text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["sequential-rule", "parallel-rule", "asyncthink-rule"])
async def test_a_prompt_that_does_not_fit_the_model(tmp_path: Path, model: str, stream: bool) -> None:
    """As OpenAI says it, so that a client shortens the conversation and does not ask for the same again."""

    def fail(text: str) -> str:
        raise ContextFull("the prompt of 9000 tokens does not fit the model's context of 4096")

    async with serving(tmp_path, fail) as server:
        reply = await server.ask(model, stream=stream)
    error = json.loads(reply.text.rpartition("data: ")[2])["error"] if stream else reply.json()["error"]
    assert reply.status_code == (200 if stream else 400)
    assert (error["code"], error["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert error["param"] == "messages" and "does not fit" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_a_limit_cut_off_says_so(tmp_path: Path, stream: bool) -> None:
    async with serving(tmp_path, lambda text: "word " * 30) as server:
        for model in ("sequential-rule", "parallel-rule", "asyncthink-rule"):  # a root that decodes, and one that votes
            reply = await server.ask(model, stream=stream, max_tokens=9)
            parts = events(reply.text) if stream else [reply.json()]
            choices = [choice for part in parts for choice in part["choices"]]
            texts = [choice.get("delta", choice.get("message", {})).get("content") or "" for choice in choices]
            assert "".join(texts) == "[no answer: a limit cut it off]"
            assert choices[-1]["finish_reason"] == "length"
    assert all(episode.answer is None for episode in server.folder.episodes())


TWICE = " ".join(f"<FORK-1> {n} </FORK-1>" for n in range(2))


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("word " * 30, "no answer: the model wrote none where it is read"),
        (TWICE, "no answer: the format error DUPLICATE_FORK ended it"),
    ],
)
async def test_no_answer_is_an_error_to_a_program(tmp_path: Path, says: str, why: str) -> None:
    """In place of a success whose text is none. OpenAI's clients do not repeat it: an episode is dear."""
    async with serving(tmp_path, lambda text: says if "How many?" in text else "word") as server:
        reply = await server.ask("asyncthink-rule")
        streamed = (await server.ask("asyncthink-rule", stream=True)).text
        body = {"model": "asyncthink-rule", "input": "How many?", "background": True}
        later = (await server.client.post("/v1/responses", json=body)).json()
        while later["status"] == "in_progress":
            later = (await server.client.get(f"/v1/responses/{later['id']}")).json()
    assert (reply.status_code, reply.headers["x-should-retry"]) == (502, "false")
    error = reply.json()["error"]
    assert (error["code"], error["type"], error["message"]) == ("no_answer", "server_error", why)
    assert json.loads(streamed.rpartition("data: ")[2])["error"] == error and "[DONE]" not in streamed
    assert later["status"] == "failed" and later["error"] == {"code": "server_error", "message": why}
    assert len(list(server.folder.episodes())) == 3, "stored all the same"


async def test_one_of_several_failures_is_a_full_context(tmp_path: Path) -> None:
    """Then a shorter conversation may fail as well."""
    failures = iter([ContextFull("it does not fit"), EngineError("the model is gone")])

    def fail(text: str) -> str:
        raise next(failures, EngineError("the model is gone"))

    async with serving(tmp_path, fail) as server:
        reply = await server.ask("parallel-rule")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "engine_failed")


async def test_a_bug_ends_its_episode_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(text: str) -> str:
        if "How many?" in text:
            raise ZeroDivisionError
        return "<ANSWER> fine </ANSWER>"

    async with serving(tmp_path, fail) as server:
        broken, streamed = await server.ask(), await server.ask(stream=True)
        good = await server.ask(messages=[{"role": "user", "content": "And now?"}])
    assert broken.status_code == 500 and broken.json()["error"]["code"] == "bug"
    assert '"code": "bug"' in streamed.text and "ZeroDivisionError" in caplog.text
    assert good.json()["choices"][0]["message"]["content"] == "fine"


async def test_the_conversation_reaches_whoever_is_told_the_question(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "I have "}, {"type": "text", "text": "pens."}]},
        {"role": "assistant", "content": "Good."},
        {"role": "user", "content": "How many?"},
    ]
    async with serving(tmp_path, organizer) as server:
        await server.ask("asyncthink-rule", messages=turns)
    (episode,) = server.folder.episodes()
    root, worker = (trace.spans[0].text for trace in episode.traces)
    assert root.index("Be brief.") < root.index("I have pens.") < root.index("Good.") < root.index("How many?")
    assert "pens" not in worker
    assert episode.problem.history == tuple(
        Message(*pair) for pair in (("system", "Be brief."), ("user", "I have pens."), ("assistant", "Good."))
    )


def test_a_system_message_comes_once_and_first(tmp_path: Path) -> None:
    style = tmp_path / "style.toml"
    style.write_text('solver = [{ system = "Solve." }, { user = "{question}" }]\nworker = "{query}"\n')
    problem = Problem("1", "t", "What?", history=(Message("system", "Brief."), Message("user", "Hi")))
    expected = (Message("system", "Brief.\n\nSolve."), Message("user", "Hi"), Message("user", "What?"))
    assert prompt(str(style), "solver", problem) == expected
    assert prompt(str(style), "worker", problem, query="part") == (Message("user", "part"),)


TEXTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y z", "\n", "u\nv", "w\n"])), max_size=40)


@given(TEXTS)
def test_lanes_keep_every_text_and_name_every_line(texts: list[tuple[str, str]]) -> None:
    class Named(NamedTuple):
        id: str

    said: list[str] = []
    lanes = Lanes(said.append)
    for name, text in texts:
        lanes.watch("text", Named(name), text)  # type: ignore[arg-type]
    for name in "abc":
        lanes.watch("end", Named(name), "ok")  # type: ignore[arg-type]
    for name in "abc":
        spoken = "".join("".join(text for one, text in texts if one == name).split())
        heard, speaker = "", None
        for line in "".join(said).splitlines():
            if line.endswith("ends: ok]"):
                continue
            if line[:1] == "[" and line[2:3] == "]":
                speaker, line = line[1], line[3:]
            heard += "".join(line.split()) if speaker == name else ""
        assert heard == spoken


@pytest.mark.parametrize("interface", [chat, responses])
@given(st.binary(max_size=60))
def test_any_body_is_a_request_or_one_line(interface: Any, body: bytes) -> None:
    try:
        interface.read(body)
    except RequestError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "api-key"),
        (["--concurrency", "0"], "at least one"),
        (["--port", "99999"], "nothing can listen"),
        (["--organizations", "sequential", "sequential"], "organization sequential is named twice"),
    ],
)
def test_bad_options(
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--url", "http://127.0.0.1:9", "--model", "m", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert message in line


@pytest.mark.parametrize("stream", [False, True])
async def test_no_client_gets_a_secret_of_the_server(tmp_path: Path, stream: bool) -> None:
    redaction.conceal("zebra-quill-battery")
    async with serving(tmp_path, lambda text: "<ANSWER> zebra-quill-battery </ANSWER>") as server:
        reply = await server.ask(stream=stream)
    assert reply.status_code == 200 and "zebra-quill-battery" not in reply.text and redaction.MARK in reply.text


async def test_a_path_that_is_none_is_not_redirected(tmp_path: Path) -> None:
    async with serving(tmp_path, key="k") as server:
        reply = await server.client.post("/v1/chat/completions/", json=ASK)
    assert reply.status_code == 404, "a redirect would answer before the key is asked for"
