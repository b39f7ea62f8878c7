"""Questions of many bytes: no step of the event loop grows with them, so that other clients are served meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attacks.catalogue import Attack, each
from loop_steps import short_steps
from models import tiny_model

pytest.importorskip("uvicorn")

from serve.test_serve import Server, serving

from orgthink.engines.engine import Chunk, Engine, FinishReason, Tools
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import Message, Problem, Sampling, Span
from orgthink.runtime import Backing, Limits, attempt
from orgthink.serve import chat
from orgthink.serve.chat import ChatExchange

MEANWHILE = "No step of the event loop takes 100 ms, however long the question of a client is."
ONCE = "A prompt that agents share is encoded once an episode."

LONG = 1_000_000
"""Characters; the largest body has eight million."""


class Ready(Engine):
    """Answers at once, and reads nothing."""

    model = "ready"

    async def stream(self, context: Any, sampling: Sampling) -> AsyncGenerator[Chunk]:
        assert context.spans[0].text
        yield Chunk(("<ANSWER> three </ANSWER>",), finish=FinishReason.EOS)


async def healthy(server: Server, over: asyncio.Event) -> int:
    """How often the server said that it is healthy."""
    count = 0
    while not over.is_set():
        assert (await server.client.get("/healthz", headers={"connection": "close"})).status_code == 200
        count += 1
    return count


def long(does: str, text: str, model: str, ids: bool, size: int = LONG, **more: Any) -> Attack:
    question = {"model": model, "messages": [{"role": "user", "content": text * (size // len(text)) + "x"}], **more}
    return Attack(does, MEANWHILE, "others are answered meanwhile", (question, ids))


LARGE = 8_000_000
"""Characters of nearly the largest body."""


@each(
    long("a million spaces, to eight agents with token ids", " ", "parallel-rule", True),
    long("a million characters of words, to an organizer, as a stream", "a ", "asyncthink-rule", False, stream=True),
)
async def test_a_long_question(attack: Attack, tmp_path: Path) -> None:
    await others_are_served(attack, tmp_path)


@each(
    long("8 MB of brackets, as of names of special tokens, with token ids", "<", "parallel-rule", True, LARGE),
    long("8 MB of words, to eight agents", "a ", "parallel-rule", False, LARGE),
    long("8 MB of words, as a stream", "a ", "parallel-rule", False, LARGE, stream=True),
    long("8 MB of Chinese, to an organizer", "七", "asyncthink-rule", False, LARGE // 3),
)
@pytest.mark.thorough
async def test_the_largest_question(attack: Attack, tmp_path: Path) -> None:
    await others_are_served(attack, tmp_path)


async def others_are_served(attack: Attack, tmp_path: Path) -> None:
    question, ids = attack.given
    context = len(question["messages"][0]["content"]) // 10  # which its characters may fit, but not its tokens
    engine = LocalEngine.open(tiny_model(tmp_path / "model", "chat", context=context)) if ids else Ready()
    async with serving(tmp_path, other=engine) as server:
        await server.ask("parallel-rule", max_tokens=1)  # imports what a first request imports
        with short_steps():
            over = asyncio.Event()
            watching = asyncio.create_task(healthy(server, over))
            reply = await server.client.post("/v1/chat/completions", json=question, timeout=300)
            over.set()
            assert await watching > 0
        assert reply.status_code == (400 if ids else 200), reply.text[:300]
    await engine.aclose()


@each(Attack("a request of any size", MEANWHILE, "it is read, and its problem made, in a thread"))
async def test_a_request_is_read_in_a_thread(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, seen = chat.read, list[tuple[bool, bool]]()

    def noted(body: bytes) -> ChatExchange:
        exchange = read(body)
        seen.append(
            (
                threading.current_thread() is threading.main_thread(),
                {"problem", "beginning"} <= vars(exchange.question).keys(),
            )
        )
        return exchange

    monkeypatch.setattr(chat, "read", noted)
    async with serving(tmp_path) as server:
        assert (await server.ask()).status_code == 200
    assert seen == [(False, True)]


@each(Attack("more than 16 characters for each token of the context", ONCE, "it is refused before it is encoded"))
async def test_more_than_any_model_reads(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine.open(tiny_model(tmp_path / "model", "chat", context=1000))
    async with serving(tmp_path, other=engine) as server:
        monkeypatch.delattr(Tokenizer, "prompt")
        long = {"model": "parallel-rule", "messages": [{"role": "user", "content": "x" * 16_001}]}
        reply = await server.client.post("/v1/chat/completions", json=long)
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
    await engine.aclose()


@each(Attack("a question of more tokens than the model reads", ONCE, "so many of its ids are stored as show that"))
async def test_ids_of_a_prompt_that_does_not_fit(attack: Attack, tmp_path: Path) -> None:
    engine = LocalEngine.open(tiny_model(tmp_path / "model", "chat", context=1000))
    async with serving(tmp_path, other=engine) as server:
        long = {"model": "parallel-rule", "messages": [{"role": "user", "content": "x" * 9_000}]}
        reply = await server.client.post("/v1/chat/completions", json=long)
    (episode,) = server.folder.episodes()
    span = episode.traces[1].spans[0]
    assert reply.status_code == 400 and f"prompt of {span.tokens} tokens" in reply.json()["error"]["message"]
    assert span.tokens > 9_000 and len(span.token_ids or ()) == 1001
    await engine.aclose()


@each(Attack("a long prompt, to eight agents of a vote", ONCE, "it is encoded once, in a thread", "so " * 30_000))
async def test_a_shared_prompt_is_read_once(attack: Attack) -> None:
    class Counting(Ready):
        read: ClassVar[list[bool]] = []

        def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
            self.read.append(threading.current_thread() is threading.main_thread())
            return super().prompt(messages, tools)

    engine, problem = Counting(), Problem("1", "t", attack.given)
    episode = await attempt(Parallel(), problem, Backing(engine, Sampling(10)), limits=Limits(8))
    assert episode.answer == "three" and len(episode.traces) == 9
    assert engine.read == [False]
    assert len({id(trace.spans[0]) for trace in episode.traces[1:]}) == 1
