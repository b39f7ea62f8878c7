"""Fork and join as calls that a real server's tool parser reads: an organizer whose four workers work while it speaks.

The model knows the episode by heart, and vLLM does the rest: its chat template shows the tools and what came back, and
its parser of the form of Hermes and Qwen turns what the model writes into native calls. `make test-vllm`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from longest_path import longest_path
from taught import PROBLEM, teach, vllm_model
from terse import TERSE
from transformers import AutoTokenizer
from vllm_process import vllm_server

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.endpoint.tool_calls import messages as native_messages
from orgthink.grammar.fork_calls import ForkCalls
from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, render_call, render_responses
from orgthink.measure.latency import concurrency, critical_path
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Episode, Message, Origin, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits

pytestmark = pytest.mark.vllm

# What came back is shown up to here: the model need not read it, and its context is short.
TEMPLATE = """{% if tools %}tools:{% for tool in tools %} {{ tool.function.name }}{% endfor %}
{% endif %}{% for m in messages %}{{ m.role }}: {{ (m.content or '')[:60] }}{% for call in m.tool_calls or [] %}
 {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}
{% endfor %}assistant:"""

TASKS = "abcd"
FORKS = "".join(render_call(ToolCall("fork", {"task": task})) for task in TASKS)
JOINS = "".join(render_call(ToolCall("join", {"id": i})) for i in range(1, 5))
MEANWHILE = " meanwhile\n" + JOINS
FOUND = " ".join(str(i) for i in range(1, 60))
ANSWER = " so <ANSWER> 3 + 5 </ANSWER>"


def lessons(folder: Path) -> list[tuple[list[int], list[int]]]:
    """The ids of each context as the server renders it, and of these the ones that the model says."""
    organizer = prompt(TERSE, "organizer_tools", PROBLEM, capacity=5)
    forked = [Response("fork", CallStatus.OK, str(i)) for i in range(1, 5)]
    joined = [Response("join", CallStatus.OK, FOUND)] * 4
    first = (*organizer, Message("assistant", FORKS), Message("user", render_responses(forked)))
    second = (*first, Message("assistant", MEANWHILE), Message("user", render_responses(joined)))
    turns = [(organizer, FORKS), (first, MEANWHILE), (second, ANSWER)]
    workers = [(prompt(TERSE, "worker_tools", PROBLEM, query=task), FOUND) for task in TASKS]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for offered, lesson in [*((ForkCalls().tools, turn) for turn in turns), *((None, worker) for worker in workers)]:
        before = tokenizer.encode(rendered(tokenizer, lesson[0], offered), add_special_tokens=False)
        says = [*tokenizer.encode(lesson[1], add_special_tokens=False), tokenizer.eos_token_id]
        found.append(([*before, *says], [-100] * len(before) + says))
    return found


def rendered(tokenizer: Any, turns: tuple[Message, ...], offered: Any) -> str:
    """The prompt as vLLM renders it, which reads the arguments of calls first."""
    sent = native_messages(turns)
    for turn in sent:
        for call in turn.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    tools = offered and [{"type": "function", "function": tool} for tool in offered]
    return tokenizer.apply_chat_template(sent, tools=tools, add_generation_prompt=True, tokenize=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = vllm_model(tmp_path_factory.mktemp("models") / "calling")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"eos_token": "<eos>"}))
    return teach(folder, lessons(folder))


async def played(url: str) -> tuple[EndpointEngine, Episode]:
    engine = await EndpointEngine.open(url)
    organization = AsyncThink(prompts=TERSE, protocol="auto")
    episode = await attempt(organization, PROBLEM, Backing(engine, Sampling(400, 0.0)), limits=Limits(5))
    await engine.aclose()
    return engine, episode


async def test_four_workers_work_while_the_organizer_speaks(folder: Path, tmp_path: Path) -> None:
    parser = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with vllm_server(folder, tmp_path / "log", *parser) as url:
        engine, episode = await played(url)
    assert engine.native_calls
    assert episode.answer == "3 + 5" and not episode.format_faults
    assert [trace.returned for trace in episode.traces[1:]] == [FOUND] * 4
    assert [edge.key for edge in episode.root.edges] == ["1", "2", "3", "4"] * 2
    forks, meanwhile, answer = [span for span in episode.root.spans if span.origin is Origin.SAMPLED]
    assert (forks.text, meanwhile.text, answer.text) == (FORKS, MEANWHILE, ANSWER)
    speaking = [meanwhile, *(trace.spans[1] for trace in episode.traces[1:])]
    begun, ended = [span.start or 0.0 for span in speaking], [span.end or 0.0 for span in speaking]
    assert max(begun) < min(ended), "there is a moment at which all five of them speak"
    assert critical_path(episode) == longest_path(episode) and (concurrency(episode) or 0.0) > 2.0
