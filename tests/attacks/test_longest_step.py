"""The largest requests of a client, to organizations of 32 agents: how long the event loop works at a time, and what
another client waits for. `pytest -s` prints both."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from loop_steps import LONGEST, Steps, short_steps
from models import tiny_model

pytest.importorskip("uvicorn")

from serve.test_serve import Server, serving

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason, TokenEngine
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Sampling
from orgthink.serve.episodes import LONGEST as CHARACTERS
from orgthink.util import redaction

pytestmark = pytest.mark.thorough

SHORT = "No step of the event loop takes 100 ms, and no other client waits for 200 ms of them."

CAPACITY, CONTEXT, LARGE = 32, 262_144, 8_000_000
"""Agents, tokens of the model's context, and bytes of nearly the largest body."""

FITS = CONTEXT - 4_000
"""Bytes that fit the context of a model with a token for each, with what the organization writes around them."""

WAIT = 0.2
"""Most seconds of steps of the loop until another client has its answer."""

TRIES = 3
"""A long step is long each time. A guest of a busy machine counts some time in which it stood still."""

ORGANIZATIONS = (
    AsyncThink(name="question", worker_context="question"),
    AsyncThink(name="inherit", worker_context="inherit"),
    AsyncThink(name="push", worker_context="inherit", delivery="push"),
)


class Organizing(Engine):
    """An organizer forks 31 workers at once and joins them one after the other; all others answer at once."""

    model = "organizing"

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        joined = re.findall(r"</JOIN-(\d+)>", context.spans[-1].text[-40:])
        at = int(joined[0]) if joined else 0
        organizes = len(context.spans) == 1 and context.messages[-1].content.startswith("You are the main process")
        if organizes:
            yield Chunk(("".join(f"<FORK-{i}> count </FORK-{i}> " for i in range(1, CAPACITY)),))
        if (organizes or joined) and at < CAPACITY - 1:
            yield Chunk((f"<JOIN-{at + 1}> ",), finish=FinishReason.EOS)
        elif joined or not context.messages[-1].content.startswith("You are"):
            yield Chunk(("<ANSWER> three </ANSWER>",), finish=FinishReason.EOS)
        else:
            yield Chunk(("<RETURN> three </RETURN>",), finish=FinishReason.EOS)


class Reading(TokenEngine):
    """The same, with the ids of a tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.model, self.max_context, self._tokenizer = "reading", CONTEXT, Tokenizer(folder)
        self._organizing = Organizing()

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        assert self.max_context is not None
        if self.require_room(context, self.max_context):
            async for chunk in self._organizing.stream(context, sampling):
                yield chunk
        else:
            yield Chunk((), (), (), FinishReason.LENGTH)


KEY = "sk-proj-0123456789abcdef/+ "


@pytest.fixture(autouse=True)
def secrets() -> Iterator[None]:
    """A server has some: each text is searched for them."""
    before = redaction._forms
    redaction.conceal(*(f"{KEY}{i}" for i in range(5)))
    yield
    redaction._forms = before


def asked(organization: str, text: str, size: int, *, turns: int = 1, parts: int = 1) -> dict[str, Any]:
    """A conversation of about so many bytes, in many turns or parts."""
    each = text * (size // len(json.dumps(text, ensure_ascii=False).encode()[1:-1]) // turns // parts) + "x"
    content = each if parts == 1 else [{"type": "text", "text": each}] * parts
    messages = [{"role": "assistant" if i % 2 else "user", "content": content} for i in range(turns - 1)]
    return {"model": f"{organization}-rule", "messages": [*messages, {"role": "user", "content": content}]}


def whole(does: str, request: dict[str, Any], *, reads: bool = False, status: int = 200, **more: Any) -> Attack:
    """A request to the chat interface; `responses=True`: to the other one."""
    given = ("/v1/responses" if more.pop("responses", False) else "/v1/chat/completions", request | more, reads, status)
    return Attack(does, SHORT, "others are answered meanwhile", given)


REFUSED = CHARACTERS * CONTEXT
"""Characters above which a question is refused before it is encoded."""


@each(
    whole("spaces, which 32 voters cannot read", asked("parallel", " ", REFUSED), reads=True, status=400),
    whole("words that 32 voters with ids can just read", asked("parallel", "a ", FITS), reads=True, stream=True),
    whole("words that 31 workers with ids read, each after its own", asked("question", "a ", FITS), reads=True),
    whole("brackets that 31 workers with ids inherit", asked("inherit", "<", FITS), reads=True, stream=True),
    whole("8 MB of brackets", asked("parallel", "<", LARGE)),
    whole("8 MB of tags", asked("asyncthink", "<FORK-1> </JOIN-1> ", LARGE), stream=True),
    whole("8 MB of rare characters, which 31 workers read", asked("question", "\U0010ffff", LARGE)),
    whole("8 MB of escapes, in the background", asked("parallel", '"\\\u2028', LARGE), responses=True, background=True),
    whole("8 MB of Chinese, as a stream of a response", asked("push", "七", LARGE), responses=True, stream=True),
    whole("8 MB of line ends, as a response", asked("sequential", "\n", LARGE), responses=True),
    whole("8 MB of the first letter of a key", asked("parallel", KEY[0], LARGE)),
    whole("8 MB in 10,000 messages", asked("parallel", "a ", LARGE - 600_000, turns=10_000)),
    whole("8 MB in 10,000 parts, which 31 workers inherit", asked("inherit", "a ", LARGE - 600_000, parts=10_000)),
    whole("8 MB of tools", asked("parallel", "x", 10) | {"tools": ["x" * 78] * 100_000}, status=400),
    whole("8 MB of stop texts", asked("parallel", "x", 10) | {"stop": ["x"] * 1_500_000}, status=400),
)
async def test_the_longest_step(attack: Attack, tmp_path: Path) -> None:
    reads = attack.given[2]
    engine = Reading(tiny_model(tmp_path / "model", "chat", context=CONTEXT)) if reads else Organizing()
    tries = []
    for number in range(TRIES):
        async with serving(tmp_path / str(number), other=engine, capacity=CAPACITY, more=ORGANIZATIONS) as server:
            tries.append(await attacked(server, *attack.given[:2], attack.given[3]))
        step, work, waited, wall = tries[-1]
        print(f"\n{attack.does}: {1000 * step:.0f} ms ({work}), {1000 * waited:.0f} ms of others, {wall:.2f} s in all")
        if step <= LONGEST and waited <= WAIT:
            return
    pytest.fail(f"the event loop stood still: {tries}")


async def attacked(server: Server, path: str, request: dict[str, Any], status: int) -> tuple[float, str, float, float]:
    """The longest step and its work, and the most seconds of steps, and of the clock, until /healthz is answered."""
    body = json.dumps(as_response(request) if "responses" in path else request, ensure_ascii=False).encode()
    waits = [(0.0, 0.0)]
    small = request | {"messages": [{"role": "user", "content": "x"}], "stream": False, "background": False}
    await server.client.post(path, json=as_response(small) if "responses" in path else small)  # imports what one does
    with short_steps(float("inf")) as steps:
        over = asyncio.Event()
        watching = asyncio.create_task(watched(server, steps, waits, over))
        headers = {"content-type": "application/json"}
        reply = await server.client.post(path, content=body, headers=headers, timeout=300)
        assert reply.status_code == status, reply.text[:300]
        if request.get("background"):
            while (await server.client.get(f"{path}/{reply.json()['id']}")).json()["status"] == "in_progress":
                pass
        if status == 200:  # an operator looks at it
            (row, *_) = (await server.client.get("/rows")).json()["ended"]
            assert (await server.client.get(f"/rows/{row['id']}", timeout=300)).status_code == 200
        over.set()
        await watching
    (step, work), waited = max(steps.long, default=(0.0, "none")), map(max, zip(*waits, strict=True))
    return step, work, *waited


def as_response(request: dict[str, Any]) -> dict[str, Any]:
    """The same question to the other interface."""
    return {**{name: value for name, value in request.items() if name != "messages"}, "input": request["messages"]}


async def watched(server: Server, steps: Steps, waits: list[tuple[float, float]], over: asyncio.Event) -> None:
    """Another client, who asks again and again."""
    while not over.is_set():
        before, began = steps.seconds, perf_counter()
        assert (await server.client.get("/healthz", headers={"connection": "close"})).status_code == 200
        waits.append((steps.seconds - before, perf_counter() - began))
