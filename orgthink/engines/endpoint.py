"""Any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any, Literal

import httpx2

from orgthink.engines import native_calls, wire
from orgthink.engines.engine import Chunk, Context, EngineError, EngineUnavailable, Finish
from orgthink.engines.fields import Fields
from orgthink.engines.retry import Patience, busy, retry_after
from orgthink.engines.tokenizer import Tokenizer
from orgthink.engines.wire import Mode
from orgthink.episode import Message, Origin, Sampling, Span

log = logging.getLogger(__name__)


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
        self.requests = 0
        """HTTP requests made, again ones included."""
        self.retries = 0
        """Of these, again ones."""
        self._key, self._tokenizer, self._patience = api_key or "", tokenizer, patience or Patience()
        self._keeps_stops = False
        """Whether the server can leave a stop text in its answer. Those that cut it off are not told any."""
        self._fields = Fields()
        self._places = asyncio.Semaphore(concurrency)
        timeout = httpx2.Timeout(self._patience.read, connect=self._patience.connect, pool=None)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=concurrency)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            base = httpx2.URL(url)
            base = base if base.path.strip("/") else base.copy_with(path="/v1")
            self._client = httpx2.AsyncClient(base_url=base, headers=headers, timeout=timeout, limits=limits)
        except (httpx2.InvalidURL, ValueError) as error:
            raise EngineUnavailable(f"not a URL, or not a key: {self._clean(str(error))}") from error
        self.url = str(base.copy_with(username=None, password=None)).rstrip("/")

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
        try:
            engine.model = await engine._choose(model)
            engine.mode = await engine._probe(mode)
        except BaseException:
            await engine.aclose()
            raise
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
        async with self._places, aclosing(self._answer(body)) as answer:
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
        await self._client.aclose()

    async def _choose(self, model: str | None) -> str:
        """The model to use, after a look at those the server has."""
        response = await self._ask("GET", "models")
        if response.status_code == 200:
            self.models = wire.models(response.text)
        elif response.status_code not in (404, 405):  # some servers do not list models
            raise self._refusal(response)
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
            response = await self._try(mode, body)
            if response.status_code != 200:
                refusal = refusal or self._refusal(response)
                continue
            choice = wire.choice(response.text)
            self._keeps_stops = "stop_reason" in choice  # vLLM's sign: it takes include_stop_str_in_output
            if mode is Mode.CHAT:
                self.native_calls = await self._takes_tools(body, response)
            if mode is not Mode.TOKENS or choice.get("token_ids"):
                return mode
            refusal = EngineUnavailable(f"{self.url} returns no token ids: use mode chat or completions")
        raise EngineUnavailable(str(refusal))

    async def _takes_tools(self, body: dict[str, Any], without: httpx2.Response) -> bool:
        """Whether the server takes tools, and counts more tokens in the prompt then: some just leave them out."""
        try:
            response = await self._try(Mode.CHAT, body | native_calls.offer((native_calls.NOOP,)))
        except EngineError:  # llama.cpp's way to refuse them is to fail
            return False
        tokens = [wire.prompt_tokens(each.text) for each in (without, response)]
        return response.status_code == 200 and (None in tokens or tokens[0] != tokens[1])

    async def _try(self, mode: Mode, body: dict[str, Any]) -> httpx2.Response:
        """A plain request, without the fields that turn out not to be taken."""
        while True:
            sent = self._fields.fit(body)
            response = await self._ask("POST", mode.path, sent)
            if not self._fields.learn(response.status_code, response.text, sent):
                return response

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx2.Response:
        """A plain request, made again while the server is busy."""
        for attempt in count(1):
            self.requests += 1
            try:
                response = await self._client.request(method, path, json=body)
            except httpx2.UnsupportedProtocol as error:
                raise EngineUnavailable(f"{self.url} is not a URL with http:// or https://") from error
            except httpx2.RequestError as error:
                raise EngineUnavailable(str(self._failure(error))) from error
            if not busy(response.status_code):
                return response
            await self._wait(attempt, self._refusal(response), retry_after(response.headers.get("retry-after")))
        raise AssertionError

    async def _answer(self, body: dict[str, Any]) -> AsyncGenerator[wire.Event]:
        """Events of an answer. The request is made again where that may help, as long as none has come."""
        attempt = 1
        while True:
            begun, asked = False, None
            if self._client.is_closed:
                raise EngineError("the engine was closed")
            self.requests += 1
            sent = self._fields.fit(body)
            try:
                async with self._client.stream("POST", self.mode.path, json=sent) as response:
                    if response.status_code == 200:
                        wire.check_stream(response.url.host, response.headers.get("content-type"))
                        async for event in httpx2.EventSource(response):
                            begun = True
                            if event.data.strip() != "[DONE]":  # the last; reading on lets the connection be used again
                                yield wire.event(event.data)
                        return
                    await response.aread()
                if self._fields.learn(response.status_code, response.text, sent):
                    continue
                failure = self._refusal(response)
                if not busy(response.status_code):
                    raise failure
                asked = retry_after(response.headers.get("retry-after"))
            except httpx2.RequestError as error:
                failure = self._failure(error)
                if begun:
                    raise failure from error
            await self._wait(attempt, failure, asked)
            attempt += 1

    async def _wait(self, attempt: int, failure: EngineError, asked: float | None = None) -> None:
        """Wait before the next attempt, or raise the failure if there is none."""
        delay = self._patience.delay(attempt, asked)
        if delay is None:
            raise failure
        self.retries += 1
        log.warning("%s (attempt %d of %d); again in %.1f s", failure, attempt, self._patience.attempts, delay)
        await asyncio.sleep(delay)

    def _refusal(self, response: httpx2.Response) -> EngineError:
        said = self._clean(wire.complaint(response.text))
        match response.status_code:
            case 401 | 403 if self._key:
                return EngineUnavailable(f"{self.url} refuses the API key: {said}")
            case 401 | 403:
                return EngineUnavailable(f"{self.url} asks for an API key: set OPENAI_API_KEY")
            case 404:
                offer = f"; it has {self._offer()}" if self.models else ""
                return EngineUnavailable(f"{self.url} does not know model {self.model!r}: {said}{offer}")
            case status:
                return EngineError(f"{self.url} answered {status}: {said}")

    def _failure(self, error: httpx2.RequestError) -> EngineError:
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return EngineUnavailable(f"no server at {self.url}: start one there, or name another URL")
            case httpx2.TimeoutException():
                return EngineError(f"{self.url} said nothing for {self._patience.read:g} s")
            case _:
                return EngineError(
                    f"{self.url} broke off its answer: {self._clean(str(error)) or type(error).__name__}"
                )

    def _offer(self) -> str:
        return ", ".join(self.models) or "it does not say which it has"

    def _clean(self, text: str) -> str:
        """Text without the key, which some servers repeat."""
        return text.replace(self._key, "…") if self._key else text
