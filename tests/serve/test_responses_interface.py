"""The Responses interface of `orgthink serve`: what is honoured and refused, and the events of a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("uvicorn")
from serve.test_serve import Server, organizer, serving

from orgthink.engines.engine import EngineError
from orgthink.record.episode import Message
from orgthink.serve import responses
from orgthink.serve.question import RequestError

PATH = "/v1/responses"


async def ask(server: Server, model: str = "asyncthink-rule", **more: Any) -> httpx2.Response:
    return await server.client.post(PATH, json={"model": model, "input": "How many?", **more})


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream: each is named twice, and they are numbered without a gap."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    return found


async def test_a_response_and_its_usage(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer) as server:
        reply = (await ask(server, instructions="Be brief.", metadata={"run": "7"}, max_output_tokens=50)).json()
    (episode,) = server.folder.episodes()
    reasoning, message = reply["output"]
    assert message["content"] == [{"type": "output_text", "text": "three", "annotations": [], "logprobs": []}]
    assert message["role"] == "assistant" and message["status"] == reply["status"] == "completed"
    assert "[organizer forks 1]" in reasoning["summary"][0]["text"]
    steps, read = ([f(trace) for trace in episode.traces] for f in (lambda t: t.steps, lambda t: t.spans[0].tokens))
    used = reply["usage"]
    assert used["output_tokens"] == sum(steps) == server.engine.sampled
    assert used["output_tokens_details"] == {"orchestration_output_tokens": steps[1], "reasoning_tokens": steps[1]}
    assert used["input_tokens"] >= sum(read) and used["input_tokens_details"]["cached_tokens"] == 0
    assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"]
    assert reply["orgthink"]["episode_id"] == episode.id and reply["orgthink"]["agents"] == 2
    echoed = {"object": "response", "store": False, "previous_response_id": None, "metadata": {"run": "7"}}
    assert (echoed | {"instructions": "Be brief.", "max_output_tokens": 50}).items() <= reply.items()
    assert episode.problem.history == (Message("system", "Be brief."),)


async def test_a_stream_comes_to_the_same_response(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer, seconds=0.05) as server:
        found = events((await ask(server, stream=True)).text)
        whole = (await ask(server)).json()
    kinds = [one["type"] for one in found]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
    ]
    deltas = [one["delta"] for one in found if one["type"] == "response.reasoning_summary_text.delta"]
    after = kinds[4 + len(deltas) :]
    assert len(deltas) > 1 and after == [
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    last = found[-1]["response"]
    assert found[0]["response"] | {"status": "completed"} | _ended(last) == last
    done = [one["item"] for one in found if one["type"] == "response.output_item.done"]
    assert last["output"] == done and done[0]["summary"][0]["text"] == "".join(deltas)
    text = "".join(one["delta"] for one in found if one["type"] == "response.output_text.delta")
    assert text == last["output"][1]["content"][0]["text"] == "three"
    assert last["usage"] == whole["usage"] and [item["type"] for item in whole["output"]] == ["reasoning", "message"]
    assert {one["output_index"] for one in found if one.get("item_id") == done[0]["id"]} == {0}
    assert {one["output_index"] for one in found if one.get("item_id") == done[1]["id"]} == {1}


def _ended(response: dict[str, Any]) -> dict[str, Any]:
    return {name: response[name] for name in ("output", "usage", "orgthink")}


async def test_the_first_lane_arrives_while_the_model_speaks(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: "word " * 5_000, seconds=0.001) as server:
        body = {"model": "sequential-rule", "stream": True, "input": "How many?"}
        async with server.client.stream("POST", PATH, json=body) as response:
            async for line in response.aiter_lines():
                if "reasoning_summary_text.delta" in line:
                    break
            assert server.engine.sampled < 100


@pytest.mark.parametrize("stream", [False, True])
async def test_a_limit_makes_a_response_incomplete(tmp_path: Path, stream: bool) -> None:
    async with serving(tmp_path, lambda text: "word " * 300) as server:
        reply = await ask(server, "sequential-rule", max_output_tokens=20, stream=stream)
    last = events(reply.text)[-1] if stream else {"type": "response.incomplete", "response": reply.json()}
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == last["response"]["output"][-1]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["usage"]["output_tokens"] == 20


async def test_a_stream_that_fails_says_why(tmp_path: Path) -> None:
    def fail(text: str) -> str:
        if "</JOIN" in text.rpartition("How many?")[2]:
            raise EngineError("the model is gone")
        return organizer(text)

    async with serving(tmp_path, fail) as server:
        found = events((await ask(server, stream=True)).text)
        whole = await ask(server)
    assert found[-1]["type"] == "response.failed"
    failed = found[-1]["response"]
    assert failed["error"]["code"] == "server_error" and "the model is gone" in failed["error"]["message"]
    (reasoning,) = failed["output"]
    assert (failed["status"], reasoning["status"]) == ("failed", "incomplete") and reasoning["summary"]
    assert whole.status_code == 502 and "the model is gone" in whole.json()["error"]["message"]


async def test_the_conversation_goes_on_with_what_came_back(tmp_path: Path) -> None:
    """The output of a response is input of the next request, its reasoning included."""
    async with serving(tmp_path, organizer) as server:
        first = (await ask(server)).json()
        parts = [{"type": "input_text", "text": "And how many "}, {"type": "input_text", "text": "pens?"}]
        turns = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "How many?"},
            *first["output"],
            {"type": "message", "role": "user", "content": parts},
        ]
        assert (await ask(server, input=turns)).status_code == 200
    _, episode = server.folder.episodes()
    assert episode.problem.text == "And how many pens?"
    assert episode.problem.history == tuple(
        Message(*pair) for pair in (("system", "Be brief."), ("user", "How many?"), ("assistant", "three"))
    )


async def test_a_seed_is_of_the_whole_tree(tmp_path: Path) -> None:
    async with serving(tmp_path, organizer) as server:
        assert (await ask(server, seed=7, temperature=0.5, top_p=0.9)).status_code == 200
    (episode,) = server.folder.episodes()
    (sampling,) = {s.sampling for t in episode.traces[:1] for s in t.spans[1:2] if s.sampling is not None}
    assert (sampling.temperature, sampling.top_p) == (0.5, 0.9) and sampling.seed is not None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"store": True}, "store"),
    ({"store": False, "background": True}, "store"),
    ({"background": "later"}, "background"),
    ({"include": ["reasoning.encrypted_content"]}, "include"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"truncation": "auto"}, "truncation"),
    ({"top_k": 5}, "top_k"),
    ({"guided_json": {}}, "guided_json"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"instructions": ["x"]}, "instructions"),
    ({"input": []}, "input"),
    ({"input": ""}, "input"),
    ({"input": None}, "input"),
    ({"input": {"role": "user"}}, "input"),
    ({"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "input"),
    ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "input"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input"),
    ({"input": [{"type": ["message"], "role": "user", "content": "x"}]}, "input"),
    ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0"),
    ({"input": [{"role": "user", "content": "x"}, {"type": "function_call", "name": "f"}]}, "input.1"),
    ({"input": [{"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "tool", "content": "x"}]}, "input.1.role"),
    ({"input": [None]}, "input.0"),
]


async def test_what_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for more, place in REFUSED:
            reply = await ask(server, **more)
            error = reply.json()["error"]
            assert reply.status_code == 400 and error["param"].startswith(place), (more, error)
            assert error["type"] == "invalid_request_error" and "\n" not in error["message"]
        everything = await ask(server, tools=[{"type": "web_search"}], prompt={"id": "pmpt_1"}, conversation="c")
        missing = await ask(server, "gpt-9")
    assert everything.json()["error"]["message"] == "conversation, prompt, tools are not supported by an organization"
    assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
    assert server.engine.requests == 0


HARMLESS = {
    "previous_response_id": None,
    "store": False,
    "background": False,
    "include": [],
    "reasoning": {"effort": None, "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "user": "u",
    "service_tier": "auto",
    "top_k": -1,
    "min_p": 0,
    "repetition_penalty": 1.0,
    "best_of": 1,
    "guided_json": None,
}


async def test_members_that_want_nothing_are_no_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert (await ask(server, **HARMLESS)).status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "role", "content"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["input", "instructions", "store", "text", "reasoning", "metadata"]), JSON))
def test_any_request_is_one_or_one_line(members: dict[str, Any]) -> None:
    try:
        reply = responses.read(json.dumps({"model": "m", **members}).encode())
    except RequestError as error:
        assert error.status == 400 and "\n" not in str(error)
    else:
        assert reply.question.conversation[-1].role == "user"
