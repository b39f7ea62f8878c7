"""The web application: routes, keys, bounds on what a client may send, and the end of clients that go away."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from orgthink.episode import Episode
from orgthink.evaluation import engine_failed, failure_message
from orgthink.serve import chat
from orgthink.serve.chat import ChatRequest, RequestError
from orgthink.serve.episodes import Served, ServedEpisodes
from orgthink.serve.lanes import Lanes
from orgthink.serve.usage import facts, finish_reason, usage

LARGEST = 16 << 20
"""Most bytes of a request's body."""
QUIET = 10.0
"""Seconds without a text after which a stream sends a comment, so that nobody takes it for dead."""
LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]
"""Names of this machine."""


def application(
    served: Mapping[str, Served], episodes: ServedEpisodes, *, key: str | None = None, hosts: list[str] | None = None
) -> Starlette:
    """The application. `key` is asked of every client; `hosts` are the names under which it may be called."""
    routes = _Routes(served, episodes, key)
    return Starlette(
        routes=[
            Route("/healthz", routes.health),
            Route("/metrics", routes.metrics),
            Route("/v1/models", routes.models),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)] if hosts else [],
        exception_handlers={RequestError: _refused, HTTPException: _unknown},  # type: ignore[dict-item]
    )


class _Routes:
    def __init__(self, served: Mapping[str, Served], episodes: ServedEpisodes, key: str | None) -> None:
        self._served, self._episodes, self._key = served, episodes, key
        self._began = int(time.time())

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        """Counters in the text format of Prometheus."""
        self._admit(request)
        names = {f"orgthink_{name}_total": value for name, value in asdict(self._episodes.counts).items()}
        lines = [f"# TYPE {name} counter\n{name} {value}" for name, value in names.items()]
        lines.append(f"# TYPE orgthink_running gauge\northink_running {self._episodes.running}")
        return PlainTextResponse("\n".join(lines) + "\n")

    async def models(self, request: Request) -> Response:
        self._admit(request)
        data = [
            {"id": name, "object": "model", "created": self._began, "owned_by": "orgthink", "root": one.base}
            for name, one in self._served.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def chat(self, request: Request) -> Response:
        self._admit(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RequestError("the content type must be application/json", 415)  # no form of a foreign page
        question = chat.read(await _body(request))
        if question.model not in self._served:
            known = ", ".join(self._served)
            raise RequestError(f"there is no model {question.model!r}: there is {known}", 404, code="model_not_found")
        served = self._served[question.model]
        reply = _Reply(question.model)
        if question.stream:
            texts: asyncio.Queue[str | None] = asyncio.Queue()
            task = self._episodes.begin(served, question, Lanes(texts.put_nowait).watch)
            task.add_done_callback(lambda done: texts.put_nowait(None))
            return StreamingResponse(_events(reply, question, task, texts), media_type="text/event-stream")
        task = self._episodes.begin(served, question, lambda kind, agent, text: None)
        return JSONResponse(reply.whole(_answered(await _unless_gone(request, task)), question))

    def _admit(self, request: Request) -> None:
        """RequestError without the key."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if self._key is not None and not secrets.compare_digest(given.encode(), self._key.encode()):
            raise RequestError("a valid key is missing: Authorization: Bearer KEY", 401, code="invalid_api_key")


class _Reply:
    """The forms of a response."""

    def __init__(self, model: str) -> None:
        self._model, self._created, self._id = model, int(time.time()), f"chatcmpl-{secrets.token_hex(12)}"

    def whole(self, episode: Episode, question: ChatRequest) -> dict[str, Any]:
        message = {"role": "assistant", "content": chat.cut(episode.answer or "", question.stop)}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason(episode), "logprobs": None}
        return self._head("chat.completion") | {
            "choices": [choice],
            "usage": usage(episode),
            "orgthink": facts(episode),
        }

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event(self._head("chat.completion.chunk") | {"choices": [choice]} | more)

    def counts(self, episode: Episode) -> str:
        """The chunk that `include_usage` asks for."""
        return event(self._head("chat.completion.chunk") | {"choices": [], "usage": usage(episode)})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


async def _events(
    reply: _Reply, question: ChatRequest, task: asyncio.Task[Episode], texts: asyncio.Queue[str | None]
) -> AsyncIterator[str]:
    """A streamed response: the lanes as reasoning, under both names that clients know, then the answer."""
    try:
        yield reply.chunk({"role": "assistant", "content": ""})
        while True:
            try:
                text = await asyncio.wait_for(texts.get(), QUIET)
            except TimeoutError:
                yield ": working\n\n"
                continue
            if text is None:
                break
            while not texts.empty() and (more := texts.get_nowait()) is not None:
                text += more
            yield reply.chunk({"reasoning_content": text, "reasoning": text})
            if task.done() and texts.empty():
                break
        try:
            episode = _answered(await task)
        except RequestError as error:
            yield event(error.body)
            return
        yield reply.chunk({"content": chat.cut(episode.answer or "", question.stop)})
        yield reply.chunk({}, finish_reason(episode), orgthink=facts(episode))
        if question.stream_options is not None and question.stream_options.include_usage:
            yield reply.counts(episode)
        yield "data: [DONE]\n\n"
    finally:
        task.cancel()  # the client is gone, or the episode has ended


def _answered(episode: Episode) -> Episode:
    """RequestError if an engine failed it."""
    if engine_failed(episode):
        raise RequestError(failure_message(episode), 502, code="engine_failed")
    return episode


def event(value: Mapping[str, Any]) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


async def _body(request: Request) -> bytes:
    """The body, of a bounded size."""
    found = bytearray()
    try:
        async for part in request.stream():
            found += part
            if len(found) > LARGEST:
                raise RequestError(f"the body is larger than {LARGEST:,} bytes", 413, code="too_large")
    except ClientDisconnect:
        raise RequestError("the client went away", 499) from None
    return bytes(found)


async def _unless_gone(request: Request, task: asyncio.Task[Episode]) -> Episode:
    """The episode, which ends if its client goes away."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.create_task(gone())
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestError("the client went away", 499)
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving


async def _refused(request: Request, error: RequestError) -> Response:
    return JSONResponse(error.body, error.status, headers=dict(error.headers))


async def _unknown(request: Request, error: HTTPException) -> Response:
    return JSONResponse(RequestError(error.detail, error.status_code).body, error.status_code)
