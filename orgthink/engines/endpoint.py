"""Any OpenAI-compatible server."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any, Literal, TypeVar

import httpx2

from orgthink.engines import native_calls, wire
from orgthink.engines.engine import Chunk, Context, EngineError, EngineUnavailable, Finish
from orgthink.engines.fields import Fields
from orgthink.engines.tokenizer import Tokenizer
from orgthink.engines.wire import Mode
from orgthink.episode import Message, Origin, Sampling, Span
from orgthink.http import Patience, Reply, Server, read, server_url

log = logging.getLogger(__name__)

T = TypeVar("T")


def from_environment(environ: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """`OPENAI_BASE_URL` and `OPENAI_API_KEY`, where set."""
    return environ.get("OPENAI_BASE_URL") or None, environ.get("OPENAI_API_KEY") or None


class EndpointEngine:
    """A model behind a URL.

    Closing a stream closes its connection: no further token is read, and the server stops decoding when it notices.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tokenizer: Tokenizer | None = None,
        patience: Patience | None = None,
        concurrency: int = 64,
    ) -> None:
        """Use `open`, which finds out what the server can do."""
        self.model = ""
        self.mode = Mode.CHAT
        self.models: dict[str, int | None] = {}
        """Models of the server and the tokens of their contexts, as far as it tells."""
        self.native_calls = False
        self._key, self._tokenizer = api_key or "", tokenizer
        self._keeps_stops = False
        """Whether the server can leave a stop text in its answer. Those that cut it off are not told any."""
        self._fields = Fields()
        try:
            base = server_url(url)
            self._server = Server(
                base if base.path.strip("/") else base.copy_with(path="/v1"),
                failure=EngineError,
                unreachable=EngineUnavailable,
                refusal=self._refusal,
                key=self._key,
                patience=patience,
                requests=concurrency,
            )
        except ValueError as error:
            raise EngineUnavailable(f"not a URL, or not a key: {error}") from error
        self.url = self._server.name

    @property
    def retries(self) -> int:
        """Requests that were made again."""
        return self._server.retries

    @classmethod
    async def open(
        cls,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        mode: Literal["auto", "tokens", "completions", "chat"] = "auto",
        tokenizer: Tokenizer | None = None,
        patience: Patience | None = None,
        concurrency: int = 64,
    ) -> EndpointEngine:
        """Ask the server for its models, and for one token in each mode that may do, until one does.

        `model` may be left out where the server has one; `api_key` is `OPENAI_API_KEY` by default. `tokens` mode needs
        the model's tokenizer, ValueError without; `auto` takes it where it can, else `chat`, else `completions`.
        At most `concurrency` streams are open at once, others wait. EngineUnavailable says in a line what to do.
        """
        if mode == "tokens" and tokenizer is None:
            raise ValueError("mode tokens needs the tokenizer of the model: give its folder")
        key = api_key or from_environment()[1]
        engine = cls(url, api_key=key, tokenizer=tokenizer, patience=patience, concurrency=concurrency)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(engine.aclose)
            try:
                engine.model = await engine._choose(model)
                engine.mode = await engine._probe(mode)
            except EngineError as error:
                raise EngineUnavailable(str(error)) from error
            stack.pop_all()
        log.info("%s: model %s, mode %s", engine.url, engine.model, engine.mode)
        return engine

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        """By ids and the chat template in `tokens` mode; else just the texts, counted in words."""
        if self._tokenizer is not None and self.mode is not Mode.CHAT:
            span = self._tokenizer.prompt(messages)
            return span if self.mode is Mode.TOKENS else replace(span, token_ids=None)
        text = "\n\n".join(message.content for message in messages)
        return Span(Origin.PROMPT, text, len(text.split()))

    def injection(self, text: str) -> tuple[str, tuple[int, ...] | None]:
        return text, self._tokenizer.encode(text) if self.mode is Mode.TOKENS and self._tokenizer else None

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        """By the chat template in `tokens` and `completions` mode; a server that chats makes turns itself."""
        if self._tokenizer is None or self.mode is Mode.CHAT:
            return text, None
        if self.mode is Mode.TOKENS:
            return self._tokenizer.turn(text, context)
        return self._tokenizer.turn(text)[0], None  # what ended the reply is no text

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        if self.mode is Mode.TOKENS and (room := self.models.get(self.model)):
            left = room - len(context.token_ids)
            if left < 1:
                if len(context.spans) == 1:
                    raise EngineError(f"the prompt of {room - left} tokens does not fit the model's context of {room}")
                yield Chunk((), (), (), Finish.LENGTH)
                return
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, left))
        body = wire.request(self.mode, self.model, context, sampling, stops=self._keeps_stops, tools=self.native_calls)
        reader = wire.Reader(sampling, self._tokenizer if self.mode is Mode.TOKENS else None)
        last: Chunk | None = None
        async with aclosing(self._answer(body)) as answer:
            try:
                async for event in answer:
                    if last is not None:  # the count comes after the end
                        last = replace(last, tokens=event.tokens or last.tokens)
                        continue
                    chunk = reader.chunk(event)
                    if chunk.finish is not None:
                        last = replace(chunk, tokens=event.tokens)
                        if event.finish is None:
                            break
                    elif chunk.pieces:
                        yield chunk
            except EngineError:
                if last is None:
                    raise
        if last is None:
            raise EngineError(f"{self.url} ended its answer after {reader.read} tokens without saying why")
        yield last

    async def aclose(self) -> None:
        await self._server.aclose()

    async def _choose(self, model: str | None) -> str:
        """The model to use, after a look at those the server has."""
        reply = await self._server.request("GET", "models", reconnect=False)
        if reply.status == 200:
            self.models = wire.models(reply.text)
        elif reply.status not in (404, 405):  # some servers do not list models
            raise self._refusal(reply)
        if model is None:
            if len(self.models) != 1:
                raise EngineUnavailable(f"name a model of {self.url}: {self._offer()}")
            return next(iter(self.models))
        if self.models and model not in self.models:
            raise EngineUnavailable(f"{self.url} has no model {model!r}: {self._offer()}")
        return model

    async def _probe(self, wanted: str) -> Mode:
        """The first mode in which the server gives a token."""
        auto = [*([Mode.TOKENS] if self._tokenizer else []), Mode.CHAT, Mode.COMPLETIONS]
        refusal: EngineError | None = None
        for mode in auto if wanted == "auto" else [Mode(wanted)]:
            ids = self._tokenizer.encode("Hi") if self._tokenizer else None
            context = Context((Message("user", "Hi"),), [Span(Origin.PROMPT, "Hi", 1, ids)])
            body = wire.request(mode, self.model, context, Sampling(1), stops=False) | {"stream": False}
            body.pop("stream_options", None)
            reply = await self._try(mode, body)
            if reply.status != 200:
                refusal = refusal or self._refusal(reply)
                continue
            choice = wire.choice(reply.text)
            self._keeps_stops = "stop_reason" in choice  # vLLM's sign: it takes include_stop_str_in_output
            if mode is Mode.CHAT:
                self.native_calls = await self._takes_tools(body, reply)
            if mode is not Mode.TOKENS or choice.get("token_ids"):
                return mode
            refusal = EngineUnavailable(f"{self.url} returns no token ids: use mode chat or completions")
        assert refusal is not None
        raise refusal

    async def _takes_tools(self, body: dict[str, Any], without: Reply) -> bool:
        """Whether the server takes tools, and counts more tokens in the prompt then: some just leave them out."""
        try:
            reply = await self._try(Mode.CHAT, body | native_calls.offer((native_calls.NOOP,)))
        except EngineError:  # llama.cpp's way to refuse them is to fail
            return False
        tokens = [wire.prompt_tokens(each.text) for each in (without, reply)]
        return reply.status == 200 and (None in tokens or tokens[0] != tokens[1])

    async def _try(self, mode: Mode, body: dict[str, Any]) -> Reply:
        """A plain request, without the fields that turn out not to be taken."""
        while True:
            sent = self._fields.fit(body)
            reply = await self._server.request("POST", mode.path, sent, reconnect=False)
            if not self._fields.learn(reply.status, reply.text, sent):
                return reply

    async def _answer(self, body: dict[str, Any]) -> AsyncGenerator[wire.Event]:
        """Events of an answer. The request is made again where that may help, as long as none has come."""
        async with AsyncExitStack() as stack:
            events = await self._server.persist(lambda: self._begin(stack, body))
            try:
                async for event in events:
                    if event.data.strip() != "[DONE]":  # the last; reading on lets the connection be used again
                        yield wire.event(event.data)
            except httpx2.RequestError as error:
                raise self._server.broken(error) from error

    async def _begin(self, stack: AsyncExitStack, body: dict[str, Any]) -> AsyncIterator[httpx2.ServerSentEvent]:
        """Events of an answer that has begun; the stack closes it."""
        while True:
            sent = self._fields.fit(body)
            async with AsyncExitStack() as trial:
                response = await trial.enter_async_context(self._server.stream("POST", self.mode.path, sent))
                if response.status_code == 200:
                    wire.check_stream(response.url.host, response.headers.get("content-type"))
                    events = aiter(httpx2.EventSource(response))
                    first = await anext(events, None)
                    stack.push_async_exit(trial.pop_all())
                    return _chained(first, events)
                reply = await read(response)
            if not self._fields.learn(reply.status, reply.text, sent):
                raise self._server.refused(reply)

    def _refusal(self, reply: Reply) -> EngineError:
        said = self._server.complaint(reply)
        match reply.status:
            case 401 | 403 if self._key:
                return EngineUnavailable(f"{self.url} refuses the API key: {said}")
            case 401 | 403:
                return EngineUnavailable(f"{self.url} asks for an API key: set OPENAI_API_KEY")
            case 404:
                offer = f"; it has {self._offer()}" if self.models else ""
                return EngineUnavailable(f"{self.url} does not know model {self.model!r}: {said}{offer}")
            case _:
                return EngineError(self._server.answered(reply))

    def _offer(self) -> str:
        return ", ".join(self.models) or "it does not say which it has"


async def _chained(first: T | None, others: AsyncIterator[T]) -> AsyncIterator[T]:
    """The first, which has been taken already, and the others."""
    if first is not None:
        yield first
    async for other in others:
        yield other
