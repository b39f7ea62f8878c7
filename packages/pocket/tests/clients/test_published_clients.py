"""Clients of OpenAI's interfaces, as they are published, against `orgthink serve` (`make test-clients`)."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from question import QUESTION, solved
from served import KEY, Server, served

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
ASK: Any = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
MODEL, SLOW = "asyncthink-pocket-organizer", "slow-pocket-base"


@contextmanager
def started(*more: str) -> Iterator[tuple[Server, subprocess.Popen[str]]]:
    """A server with these options."""
    organizations = ["--organizations", "asyncthink", "slow=parallel", "--models", "slow=pocket-base"]
    with served("--model", "pocket-organizer", *organizations, *more) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started("--out", str(tmp_path_factory.mktemp("served") / "run")) as (server, _):
        yield server


def test_openai(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=server.url, api_key=KEY)
    assert [model.id for model in client.models.list()] == [MODEL, SLOW]
    reply = client.chat.completions.create(model=MODEL, **ASK)
    message = reply.choices[0].message
    assert solved(message.content) and reply.choices[0].finish_reason == "stop"
    assert "forks" in getattr(message, "reasoning_content", "")
    assert reply.usage is not None and reply.usage.total_tokens > reply.usage.completion_tokens > 0
    details = reply.usage.completion_tokens_details
    assert details is not None and details.reasoning_tokens is not None and details.reasoning_tokens > 0


def test_openai_streams(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=server.url, api_key=KEY)
    chunks = list(
        client.chat.completions.create(model=MODEL, stream=True, stream_options={"include_usage": True}, **ASK)
    )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "forks" in "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas)
    assert solved("".join(delta.content or "" for delta in deltas))
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens > 0


RESPONSE: Any = {"model": MODEL, "input": QUESTION, "temperature": 0}


def test_openai_responses(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=server.url, api_key=KEY)
    response = client.responses.create(**RESPONSE, store=False, metadata={"run": "7"})
    assert solved(response.output_text) and response.status == "completed"
    reasoning, message = response.output
    assert reasoning.type == "reasoning" and "forks" in reasoning.summary[0].text and message.type == "message"
    assert response.usage is not None and response.usage.output_tokens > 0
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert (response.store, response.metadata) == (False, {"run": "7"})
    conversation: Any = [{"role": "user", "content": QUESTION}, *response.output, {"role": "user", "content": QUESTION}]
    told = {"input": conversation, "instructions": "Answer with a term.", "max_output_tokens": 5}
    assert client.responses.create(**RESPONSE | told).instructions == told["instructions"]


def test_openai_streams_responses(server: Server) -> None:
    """The events as they come, each complete by the client's own types, and the client's own account of them."""
    import openai

    client = openai.OpenAI(base_url=server.url, api_key=KEY)
    events = list(client.responses.create(stream=True, **RESPONSE))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    deltas = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert "forks" in "".join(deltas) and solved(text)
    for event in events:
        type(event).model_validate_json(event.to_json())
        assert not event.model_extra, "every member of an event is one that OpenAI names"
    with client.responses.stream(**RESPONSE) as stream:
        snapshots = [event for event in stream if event.type == "response.output_text.done"]
        final = stream.get_final_response()
    assert len(snapshots) == 1 and solved(final.output_text) and solved(snapshots[0].text)
    assert final.usage is not None and final.usage.output_tokens > 0


async def test_openai_responses_cancelled(server: Server) -> None:
    import openai

    async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
        before = server.counters()
        stream: Any = await client.responses.create(**RESPONSE | {"model": SLOW, "temperature": 1}, stream=True)
        async for event in stream:
            if event.type == "response.reasoning_summary_text.delta":
                break
        await stream.close()
        deadline = time.monotonic() + 30
        while (now := server.counters())["running"] and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
    assert (now["left_total"] - before["left_total"], now["running"]) == (1, 0)


def test_openai_responses_in_the_background(server: Server) -> None:
    """Create, retrieve, and stream again from the number of an event; every event is complete by the client's types."""
    import openai

    client = openai.OpenAI(base_url=server.url, api_key=KEY)
    response = client.responses.create(**RESPONSE, background=True, store=True)
    assert response.status in ("queued", "in_progress") and response.background
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert response.status == "completed" and solved(response.output_text) and response.usage is not None
    events = list(client.responses.retrieve(response.id, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    for event in events:
        type(event).model_validate_json(event.to_json())
        assert not event.model_extra
    for after in (0, 3, len(events) - 2):
        again = client.responses.retrieve(response.id, stream=True, starting_after=after)
        assert list(again) == events[after + 1 :]
    with client.responses.stream(response_id=response.id, starting_after=3) as stream:
        assert next(iter(stream)).sequence_number == 4
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        client.responses.retrieve("resp_1")


def test_openai_does_what_the_page_shows(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs" / "serving.md").read_text(), re.DOTALL | re.MULTILINE)
    exec(block.replace("http://127.0.0.1:8000/v1", server.url).replace('"none"', repr(KEY)), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 response.reasoning_summary_text.delta" and any("response.completed" in one for one in lines)


def test_openai_comes_back_to_a_stream_and_ends_it(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0)
    left = server.counters()["left_total"]
    stream: Any = client.responses.create(**RESPONSE | {"model": SLOW, "temperature": 1}, stream=True, background=True)
    before = [next(stream) for _ in range(5)]
    stream.close()
    name = before[0].response.id
    assert client.responses.retrieve(name).status == "in_progress" and server.counters()["left_total"] == left
    after: Any = client.responses.retrieve(name, stream=True, starting_after=before[-1].sequence_number)
    assert next(after).sequence_number == 5
    assert client.responses.cancel(name).status == "cancelled"
    *_, last = after
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert client.responses.cancel(name).status == client.responses.retrieve(name).status == "cancelled"
    assert server.counters()["running"] == 0


def test_openai_after_a_restart_of_its_server(tmp_path: Path) -> None:
    """The server is killed: what had ended can be fetched from the next one, what was running has failed."""
    import openai

    run = str(tmp_path / "run")
    with started("--out", run) as (server, process):
        client = openai.OpenAI(base_url=server.url, api_key=KEY)
        whole = client.responses.create(**RESPONSE, background=True)
        while whole.status == "in_progress":
            whole = client.responses.retrieve(whole.id)
        stream: Any = client.responses.create(
            **RESPONSE | {"model": SLOW, "temperature": 1}, background=True, stream=True
        )
        seen = [next(stream) for _ in range(6)]
        process.kill()
    with started("--resume", run) as (server, _):
        client = openai.OpenAI(base_url=server.url, api_key=KEY)
        assert client.responses.retrieve(whole.id) == whole and solved(whole.output_text)
        name = seen[0].response.id
        *_, last = client.responses.retrieve(name, stream=True, starting_after=seen[-1].sequence_number)
        assert (last.type, last.response) == ("response.failed", client.responses.retrieve(name))
        assert last.response.error is not None and "send the request again" in last.response.error.message


def test_openai_names_every_error(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0)
    with pytest.raises(openai.BadRequestError, match="tools is not supported"):
        client.chat.completions.create(model=MODEL, tools=[{"type": "function", "function": {"name": "f"}}], **ASK)
    with pytest.raises(openai.BadRequestError, match="previous_response_id is not supported"):
        client.responses.create(previous_response_id="resp_1", **RESPONSE)
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        client.chat.completions.create(model="gpt-9", **ASK)
    with pytest.raises(openai.AuthenticationError, match="a valid key is missing"):
        openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0).models.list()


async def test_openai_asynchronous_and_many_at_once(server: Server) -> None:
    import openai

    async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
        replies = await asyncio.gather(*(client.chat.completions.create(model=MODEL, **ASK) for _ in range(8)))
    assert all(solved(reply.choices[0].message.content) for reply in replies)
    assert len({reply.id for reply in replies}) == 8


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_cancelled(server: Server, stream: bool) -> None:
    """Eight agents at work end with their client."""
    import openai

    async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
        before = server.counters()
        asking = asyncio.create_task(
            client.chat.completions.create(model=SLOW, stream=stream, **(ASK | {"temperature": 1}))
        )
        while not server.counters()["running"]:
            await asyncio.sleep(0.001)
        if stream:
            await (await asking).close()
        else:
            asking.cancel()
        deadline = time.monotonic() + 30
        while (now := server.counters())["running"] and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
    assert (now["left_total"] - before["left_total"], now["running"]) == (1, 0)


def test_litellm(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download
    import litellm

    how: Any = {"model": f"openai/{MODEL}", "api_base": server.url, "api_key": KEY, **ASK}
    reply: Any = litellm.completion(**how)
    assert solved(reply.choices[0].message.content) and reply.usage.completion_tokens > 0
    deltas = [chunk.choices[0].delta for chunk in litellm.completion(stream=True, **how)]
    assert solved("".join(delta.content or "" for delta in deltas))
    assert "forks" in "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas)


async def test_litellm_asynchronous(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    reply: Any = await litellm.acompletion(model=f"openai/{MODEL}", api_base=server.url, api_key=KEY, **ASK)
    assert solved(reply.choices[0].message.content)


def test_inspect(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "inspect_ai", "eval", "inspect_task.py", "--display", "none"]
    options = ["--log-format", "json", "--log-dir", str(tmp_path), "--temperature", "0"]
    environment = server.environment | {"SERVED_BASE_URL": server.url, "SERVED_API_KEY": KEY}
    model = ["--model", f"openai-api/served/{MODEL}"]
    subprocess.run([*command, *model, *options], check=True, env=environment, cwd=HERE, timeout=120)
    (log,) = (json.loads(path.read_bytes()) for path in tmp_path.glob("*.json"))
    assert log["status"] == "success"
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1


def test_lm_eval(server: Server, tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text(json.dumps({"question": QUESTION}) + "\n")
    shutil.copy(HERE / "lm_eval_task.yaml", tmp_path)
    command = [sys.executable, "-m", "lm_eval", "--model", "local-chat-completions", "--tasks", "one_countdown"]
    where = f"model={MODEL},base_url={server.url}/chat/completions,num_concurrent=1,max_retries=1"
    options = ["--include_path", ".", "--apply_chat_template", "--log_samples", "--output_path", "out"]
    environment = server.environment | {"HF_HOME": str(tmp_path / "cache")}
    subprocess.run([*command, "--model_args", where, *options], check=True, env=environment, cwd=tmp_path, timeout=120)
    (samples,) = tmp_path.glob("out/**/samples_*.jsonl")
    (sample,) = map(json.loads, samples.read_text().splitlines())
    assert solved(sample["resps"][0][0])
