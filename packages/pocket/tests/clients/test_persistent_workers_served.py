"""OpenAI's published client drives an organizer whose workers persist, through `orgthink serve` (`make test-clients`).

The model behind it doubles numbers: a worker's result follows from all the subtasks that it has had, so it is wrong as
soon as a follow-up reaches another worker, or one that has forgotten.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import Exchange, Play, says
from pages import endpoint
from served import KEY, Server, served
from test_native_calls import calling, cut

from orgthink.grammar.toolcall import ToolCall
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder

pytestmark = pytest.mark.clients

MODELS = ("tags-tiny", "calls-tiny")


def reply(turns: list[dict[str, Any]], *, tools: bool) -> Play:
    """What the model says to a conversation. It calls tools natively where they are offered."""
    texts = [turn["content"] or "" for turn in turns]
    start = max(i for i, text in enumerate(texts) if "You are a subprocess." in text or "You are the main" in text)
    prompt, later = texts[start], texts[start + 1 :]
    if "You are a subprocess." in prompt:
        (number,) = re.findall(r"Subtask: take (\d+)", prompt)
        value = int(number) * 2 ** sum("Next subtask: double it" in text for text in later)
        return says(f"I have <RETURN>= {value} =</RETURN>")
    number, times = re.findall(r"(?:Take (\d+)|Take that), and double it (\d+) times", prompt)[-1]
    results = re.findall(r"= (\d+) =", " ".join(later))
    if len(results) > int(times):
        return says(f"<ANSWER>{results[-1]}</ANSWER>")
    query = "double it" if results else f"take {number or texts[start - 1]}"
    if tools:
        call = ToolCall("tell", {"id": 1, "task": query}) if results else ToolCall("fork", {"task": query})
        return calling(*cut(0, call, "a"), *cut(1, ToolCall("join", {"id": 1}), "b"))
    kind = "TELL" if results else "FORK"
    return says(f"so <{kind}-1>{query}</{kind}-1> and <JOIN-1>")


async def play(exchange: Exchange) -> None:
    await reply(exchange.body["messages"], tools="tools" in exchange.body)(exchange)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "run"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    organizations = ["--organizations", "tags=asyncthink", "calls=asyncthink", "--prompts", "paper"]
    settings = ["--set", "workers=persistent", "calls.protocol=tools"]
    with endpoint(play) as url, served("--url", url, *organizations, *settings, "--out", str(folder)) as (server, _):
        yield server


@pytest.fixture
def client(server: Server) -> Any:
    import openai

    return openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0)


def lanes_show_it(lanes: str, results: list[int]) -> None:
    """The organizer forks the worker and tells it something; each time another agent has the result."""
    assert lanes.count("[organizer forks 1]") == lanes.count("[organizer joins 1]") == len(results)
    for n, result in enumerate(results, 1):
        assert f"[organizer/1{f'#{n}' if n > 1 else ''}] I have <RETURN>= {result} =</RETURN>" in lanes


@pytest.mark.parametrize("model", MODELS)
def test_a_conversation_of_several_turns(client: Any, folder: Path, model: str) -> None:
    turns: list[Any] = []
    asked = (
        ("Take 3, and double it 2 times.", 12),
        ("Take that, and double it 1 times.", 24),
        ("Take 5, and double it 3 times.", 40),
    )
    for question, answer in asked:
        turns.append({"role": "user", "content": question})
        said = client.chat.completions.create(model=model, messages=turns)
        assert said.choices[0].message.content == str(answer)
        turns.append({"role": "assistant", "content": said.choices[0].message.content})
        times = int(question.split()[-2])
        assert said.model_extra["orgthink"]["agents"] == 2 + times
        lanes_show_it(said.choices[0].message.reasoning_content, [answer >> n for n in range(times, -1, -1)])
    last = stored(folder)[-1]
    assert [trace.agent for trace in last.traces] == [
        "organizer",
        "organizer/1",
        "organizer/1#2",
        "organizer/1#3",
        "organizer/1#4",
    ]
    for before, again in zip(last.traces[1:], last.traces[2:], strict=False):
        assert again.text.startswith(before.text) and not last.format_faults


def stored(folder: Path) -> list[Episode]:
    return list(RunFolder.open(folder).episodes())


@pytest.mark.parametrize("model", MODELS)
def test_streams(client: Any, model: str) -> None:
    ask: Any = {"model": model, "messages": [{"role": "user", "content": "Take 7, and double it 2 times."}]}
    chunks = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "28"
    lanes = [text for delta in deltas if (text := getattr(delta, "reasoning_content", None))]
    lanes_show_it("".join(lanes), [7, 14, 28])
    assert len(lanes) > 5 and chunks[-1].usage.completion_tokens > 0, "they come as they are written"


@pytest.mark.parametrize("model", MODELS)
def test_responses(client: Any, model: str) -> None:
    ask: Any = {"model": model, "input": "Take 9, and double it 1 times."}
    response = client.responses.create(**ask)
    assert (response.status, response.output_text) == ("completed", "18")
    lanes_show_it(response.output[0].summary[0].text, [9, 18])
    further = {"role": "user", "content": "Take that, and double it 2 times."}
    turns = [{"role": "user", "content": ask["input"]}, *response.output, further]
    events = list(client.responses.create(model=model, input=turns, stream=True))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "72"
    deltas = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    lanes_show_it("".join(deltas), [18, 36, 72])
    for event in events:
        type(event).model_validate_json(event.to_json())


async def test_workers_of_clients_at_once_are_not_mixed_up(server: Server) -> None:
    import openai

    async def ask(number: int) -> str | None:
        content = f"Take {number}, and double it 3 times."
        said = await client.chat.completions.create(
            model=MODELS[number % 2], messages=[{"role": "user", "content": content}]
        )
        return said.choices[0].message.content

    async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
        assert await asyncio.gather(*map(ask, range(3, 15))) == [str(8 * number) for number in range(3, 15)]
    assert server.counters()["running"] == 0
