"""Any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import httpx2

from orgthink.engines.endpoint import request, response, tool_calls
from orgthink.engines.endpoint.request import CHAT, COMPLETIONS, SupportedFields, context_full, too_few_tokens
from orgthink.engines.engine import (
    MOST_FAILURES,
    Chunk,
    Context,
    ContextFull,
    Engine,
    EngineError,
    EngineUnavailable,
    FinishReason,
    Tools,
)
from orgthink.models.context import NOOP
from orgthink.record.episode import Message, Origin, Sampling, Span
from orgthink.util.errors import RequestRefused, UserError, explained
from orgthink.util.http import HttpClient, HttpResponse, RetryPolicy, server_url
from orgthink.util.terminal import excerpt

if TYPE_CHECKING:
    from orgthink.models.tokenizer import Tokenizer

log = logging.getLogger(__name__)

FEWEST_TOKENS = 16
"""A context in which fewer tokens are left is full."""

MOST_OFFERED = 20
"""Most models of a server that a message names."""

EVENTS_PER_TOKEN, IDLE_EVENTS = 17, 1000
"""Most events of an answer: so many for each token, and others."""

LINGER = 10.0
"""Most seconds for the count of tokens after the end of an answer."""

SETTLE = 0.25
"""Most seconds for the end of a complete response. The connection is used again if it ends within them."""


class EndpointEngine(Engine):
    """A model behind a URL.

    Closing a stream closes its connection: no further token is read, and the server stops decoding when it notices.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tokenizer: Tokenizer | None = None,
        retry_policy: RetryPolicy | None = None,
        concurrency: int = 64,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """Use `open`, which detects the features of the server.

        With the model's `tokenizer` requests hold token ids; the server must return ids. `api_key` is `OPENAI_API_KEY`
        by default; a password without a user in the URL, `https://:KEY@HOST`, takes precedence. At most `concurrency`
        streams are open at once; others wait. `template` has arguments for the chat template of the server.
        """
        self._path = CHAT if tokenizer is None else COMPLETIONS
        self.models: dict[str, int | None] = {}
        """Models of the server and their context lengths in tokens, where it gives them."""
        self._tokenizer, self._template = tokenizer, template
        self._keep_stops: str | None = None
        """The field by which the server keeps a stop text in its output. Other servers get no stop texts: a text that
        they cut off looks like the end of the answer."""
        self._fields = SupportedFields()
        self._opened = False
        """Whether the server has accepted the key: a later 403 refuses a prompt."""
        with explained("invalid URL, key or proxy", ValueError, UserError, by=EngineUnavailable):
            base, own = _with_key(server_url(url))
            self._key = own or (api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
            self._server = HttpClient(
                base if base.path.strip("/") else base.copy_with(path="/v1"),
                failure=EngineError,
                unreachable=EngineUnavailable,
                refusal=self._refusal,
                key=self._key,
                retry_policy=retry_policy,
                requests=concurrency,
            )
        self.url = self._server.name

    @classmethod
    async def open(cls, url: str, model: str | None = None, **settings: Any) -> EndpointEngine:
        """Ask the server for its models, then for one token. `settings` are those of the class.

        `model` is optional if the server has only one. EngineUnavailable says what to do, on one line.
        """
        engine = cls(url, **settings)
        try:
            engine.model = await engine._choose(model)
            engine.max_context = engine.models.get(engine.model)
            await engine._probe()
        except BaseException as error:
            await engine.aclose()
            if isinstance(error, EngineError):
                raise EngineUnavailable(str(error)) from error
            raise
        engine._opened = True
        log.info("%s: model %s, path %s", engine.url, excerpt(engine.model), engine._path)
        return engine

    def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
        return self._tokenizer.prompt(messages, tools) if self._tokenizer else super().prompt(messages)

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...] | None]:
        return self._tokenizer.injection(text, around) if self._tokenizer else super().injection(text, around)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        return self._tokenizer.turn(text, context) if self._tokenizer else (text, None)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        """Servers refuse a request whose prompt and `max_tokens` together exceed the context: it is then repeated with
        half of the tokens, down to `FEWEST_TOKENS`."""
        try:
            if self._tokenizer is not None and self.max_context is not None:
                left = self.max_context - sum(len(span.token_ids or ()) for span in context.spans)
                if left < 1:
                    raise ContextFull(f"the prompt does not fit the model's context of {self.max_context} tokens")
                sampling = replace(sampling, max_tokens=min(sampling.max_tokens, left))
            while True:
                try:
                    async with aclosing(self._sampled(self._body(context, sampling), sampling)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                    return
                except ContextFull:
                    if sampling.max_tokens < 2 * FEWEST_TOKENS:
                        raise
                    sampling = replace(sampling, max_tokens=sampling.max_tokens // 2)
        except ContextFull:
            if len(context.spans) == 1:
                raise
            yield Chunk((), finish=FinishReason.LENGTH)  # a full context is a limit, not an error

    def _body(self, context: Context, sampling: Sampling) -> dict[str, Any]:
        """The request for a context."""
        how = {"keep_stops": self._keep_stops, "tools": self.native_calls}
        return request.request(self._path, self.model, context, sampling, template=self._template, **how)

    async def _sampled(self, body: dict[str, Any], sampling: Sampling) -> AsyncGenerator[Chunk]:
        """The chunks of an answer, as the server samples it."""
        reader = response.Reader(sampling, self._tokenizer)
        async with aclosing(self._answer(body)) as answer:
            async for event in answer:
                chunk = reader.chunk(event)
                if chunk.finish is not None:
                    last = replace(chunk, tokens=event.tokens, billed=event.billed)
                    yield last if event.finish is None else await _counted(last, answer)
                    return
                if chunk.pieces:
                    yield chunk
        raise EngineError(f"{self.url} ended its answer without a reason")

    async def aclose(self) -> None:
        await self._server.aclose()

    async def _choose(self, model: str | None) -> str:
        """The model to use, checked against the server's list. Some servers have no list, or refuse it to this key."""
        reply = await self._server.request("GET", "models", reconnect=False)
        if reply.status == 200:
            self.models = response.models(reply.text)
        elif reply.status == 401 or 300 <= reply.status < 400 or (model is None and reply.status not in (404, 405)):
            raise self._refusal(reply)
        if model is None:
            if len(self.models) != 1:
                raise EngineUnavailable(f"name a model of {self.url}: {self._offer()}")
            return next(iter(self.models))
        if self.models and _plain(model) not in map(_plain, self.models):
            raise EngineUnavailable(f"{self.url} has no model {model!r}: {self._offer()}")
        return model

    async def _probe(self) -> None:
        """Ask for a token, to find out what the server can do."""
        ids = self._tokenizer.encode("Hi") if self._tokenizer else None
        context = Context((Message("user", "Hi"),), [Span(Origin.PROMPT, "Hi", 1, ids)])
        sampling = Sampling(1, seed=0)  # the seed, to find out whether the server accepts one
        body = self._body(context, sampling) | {"stream": False}
        body.pop("stream_options", None)
        reply = await self._try(body)
        choice, _ = response.choice(reply.text)
        if (refusal := self._probe_error(reply, choice)) is not None:
            raise refusal
        self._keep_stops = next((field for name, field in request.KEEPS_STOPS.items() if name in choice), None)
        self.native_calls = self._tokenizer.native_calls if self._tokenizer else await self._takes_tools(body, reply)

    def _probe_error(self, reply: HttpResponse, choice: dict[str, Any]) -> EngineError | None:
        if reply.status != 200 and not too_few_tokens(reply):
            return self._refusal(reply)
        if reply.status == 200 and not choice:  # LM Studio answers 200 to unknown paths
            return EngineError(f"{self.url} sent no answer of a model: {reply.complaint}")
        if self._tokenizer is not None and not choice.get("token_ids"):
            return EngineUnavailable(f"{self.url} returns no token ids: leave out the tokenizer")
        return None

    async def _takes_tools(self, body: dict[str, Any], without: HttpResponse) -> bool:
        """Whether the server accepts tools and the prompt becomes longer with them: some servers ignore tools."""
        try:
            reply = await self._try(body | tool_calls.offer((NOOP,)))
        except EngineError:  # llama.cpp refuses tools with a server error
            return False
        (_, before), (choice, after) = response.choice(without.text), response.choice(reply.text)
        accepted = (reply.status == 200 and bool(choice)) or too_few_tokens(reply)
        return accepted and (None in (before, after) or before != after)

    async def _try(self, body: dict[str, Any]) -> HttpResponse:
        """A request without streaming, repeated without the fields that the server refuses."""
        while True:
            sent = self._fields.fit(body)
            reply = await self._server.request("POST", self._path, sent, reconnect=False)
            if not self._fields.learn(reply, sent):
                return reply

    async def _answer(self, body: dict[str, Any]) -> AsyncGenerator[response.StreamEvent]:
        """Events of a response. Before the first event a failed request is repeated where that may help."""
        async with AsyncExitStack() as stack:
            try:
                data, events = await self._server.persist(lambda: self._begin(stack, body))
                self.failures = ()
            except EngineError as error:
                self.failures = (
                    () if isinstance(error, RequestRefused) else (*self.failures, str(error))[-MOST_FAILURES:]
                )
                raise
            try:
                while data is not None and data.strip() != "[DONE]":
                    if data.strip():  # an event may have no data
                        yield response.event(data)
                    data = await anext(events, None)
                with suppress(TimeoutError):
                    async with asyncio.timeout(SETTLE):
                        async for _ in events:
                            pass
            except httpx2.RequestError as error:
                raise self._server.broken(error) from error

    async def _begin(self, stack: AsyncExitStack, body: dict[str, Any]) -> tuple[str | None, AsyncGenerator[str]]:
        """Data of the first event of a response that has begun, and of the others; the stack closes it."""
        while True:
            sent = self._fields.fit(body)
            async with AsyncExitStack() as trial:
                begun = await trial.enter_async_context(self._server.stream("POST", self._path, sent))
                if begun.status_code == 200:
                    kind = begun.headers.get("content-type") or "nothing"
                    if not kind.lower().startswith("text/event-stream"):
                        raise EngineError(f"{self.url} does not stream: it sent {excerpt(kind)}")
                    events = self._server.events(begun, EVENTS_PER_TOKEN * body["max_tokens"] + IDLE_EVENTS)
                    first = await anext(events, None)
                    if first is not None and (failed := response.failure(first)) is not None:
                        raise self._server.refused(failed)
                    stack.push_async_exit(trial.pop_all())
                    return first, events
                reply = await self._server.wait(self._server.read(begun))
            if not self._fields.learn(reply, sent):
                raise self._server.refused(reply)

    def _refusal(self, reply: HttpResponse) -> EngineError:
        message = reply.complaint
        if reply.without_quota or 300 <= reply.status < 400:
            return EngineUnavailable(self._server.answered(reply))
        match reply.status:
            case 403 if self._opened and self._key:  # such as a filter of prompts
                return RequestRefused(self._server.answered(reply))
            case 401 | 403 if self._key:
                return EngineUnavailable(f"{self.url} refuses the API key: {message}")
            case 401 | 403:
                return EngineUnavailable(f"{self.url} needs an API key: set OPENAI_API_KEY")
            case 404:
                offer = f"; it has {self._offer()}" if self.models else ""
                return EngineUnavailable(f"{self.url} does not know model {self.model!r}: {message}{offer}")
            case _ if context_full(reply):
                return ContextFull(self._server.answered(reply))
            case status if status in request.REFUSED:
                return RequestRefused(self._server.answered(reply))
            case _:
                return EngineError(self._server.answered(reply))

    def _offer(self) -> str:
        others = ["…"] if len(self.models) > MOST_OFFERED else []
        return ", ".join([*islice(self.models, MOST_OFFERED), *others]) or "its list of models is unknown"


def _with_key(url: httpx2.URL) -> tuple[httpx2.URL, str]:
    """The URL without a password that has no user, and this password, which is the server's key."""
    if url.username or not url.password:
        return url, ""
    return url.copy_with(username=None, password=None), url.password


def _plain(model: str) -> str:
    """A model's name as lists have it: Gemini lists `models/NAME`, Ollama `NAME:latest`, and OpenRouter accepts
    `NAME:VARIANT`."""
    return model.removeprefix("models/").partition(":")[0]


async def _counted(last: Chunk, events: AsyncIterator[response.StreamEvent]) -> Chunk:
    """The last chunk with the server's count of tokens, if it follows."""
    with suppress(EngineError, TimeoutError):
        async with asyncio.timeout(LINGER):
            async for event in events:
                last = replace(last, tokens=event.tokens or last.tokens, billed=event.billed or last.billed)
    return last
