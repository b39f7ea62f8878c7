"""The web application: routes, keys, request limits, and the end of an episode whose client leaves."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from orgthink.serve import chat, responses
from orgthink.serve.background import Background, History
from orgthink.serve.connections import BoundedServer, WholeRequests
from orgthink.serve.episodes import Served, ServedEpisodes
from orgthink.serve.exchange import encoded
from orgthink.serve.question import RequestError, quoted
from orgthink.serve.responses import ResponseExchange
from orgthink.serve.stream import EpisodeStream, Exchange, Lanes, events, spoken, unless_gone
from orgthink.util.threads import UNKNOWN, off_loop
from orgthink.view import live_page

LARGEST = 8 << 20
"""Most bytes of a request's body."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""
JSON, EVENTS = "application/json", "text/event-stream"
"""Media types of requests and whole responses, and of streams."""
DATA_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers of the live page's data, which browsers must not store."""
PAGE_HEADERS = DATA_HEADERS | {"referrer-policy": "no-referrer", "cross-origin-opener-policy": "same-origin"}
"""Headers of the live page in addition to its policy."""


def server(app: Starlette) -> uvicorn.Server:
    """A server of the application."""
    quiet = {"log_config": None, "log_level": "warning", "access_log": False, "server_header": False}
    # Clients of httpx close idle connections after 5 s. The server must not be the first: it would reset requests.
    how = {"ws": "none", "lifespan": "off", "proxy_headers": False, "timeout_keep_alive": 10}
    return BoundedServer(uvicorn.Config(WholeRequests(app), http="h11", **quiet, **how))  # type: ignore[arg-type]


def application(
    served: Mapping[str, Served],
    episodes: ServedEpisodes,
    background: Background,
    *,
    key: str | None = None,
    page: bool = True,
) -> Starlette:
    """The application. Every client must send `key`; without a key only names of this machine may call it.

    `page`: whether it has the live page, which shows the episodes of all clients.
    """
    routes = _Routes(served, episodes, background, key)
    live = [Route("/", routes.page), Route("/rows", routes.listing), Route("/rows/{name}", routes.episode)]
    found = Starlette(
        routes=[
            Route("/healthz", routes.health),
            Route("/metrics", routes.metrics),
            Route("/v1/models", routes.models),
            Route("/v1/models/{name:path}", routes.model),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/v1/responses", routes.responses, methods=["POST"]),
            Route("/v1/responses/{name}", routes.response),
            Route("/v1/responses/{name}/cancel", routes.response, methods=["POST"]),
            *(live if page else ()),
        ],
        exception_handlers={RequestError: _refused, HTTPException: _unknown, Exception: _bug},  # type: ignore[dict-item]
    )
    found.router.redirect_slashes = False  # a redirect would answer before the key is checked
    return found


class _Routes:
    def __init__(
        self, served: Mapping[str, Served], episodes: ServedEpisodes, background: Background, key: str | None
    ) -> None:
        self._served, self._episodes, self._background, self._key = served, episodes, background, key
        self._page = live_page("orgthink serve", {"models": ", ".join(served)} if key is None else {}, locked=bool(key))
        self._began = int(time.time())

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        """Counters in the text format of Prometheus."""
        self._admit(request)
        names = {f"orgthink_{name}_total": value for name, value in asdict(self._episodes.counts).items()}
        names["orgthink_sampled_total"] += self._episodes.board.sampled
        lines = [f"# TYPE {name} counter\n{name} {value}" for name, value in names.items()]
        lines.append(f"# TYPE orgthink_running gauge\norgthink_running {self._episodes.running}")
        return PlainTextResponse("\n".join(lines) + "\n")

    async def models(self, request: Request) -> Response:
        self._admit(request)
        return _json({"object": "list", "data": [self._described(name) for name in self._served]})

    async def model(self, request: Request) -> Response:
        """One of the models. Its name may have slashes."""
        self._admit(request)
        return _json(self._described(request.path_params["name"]))

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, chat.read)

    async def responses(self, request: Request) -> Response:
        return await self._answer(request, responses.read)

    async def response(self, request: Request) -> Response:
        """A response in the background, as it stands or by its events behind one of them; POST ends it."""
        self._admit(request)
        get = self._background.cancel if request.method == "POST" else self._background.find
        history = await get(request.path_params["name"])
        return await _reply(
            history, request.query_params.get("stream") == "true", _number(request, "starting_after", -1)
        )

    async def page(self, request: Request) -> Response:
        """The live page. It contains no data, so it can ask for the key."""
        if self._key is None:
            self._admit(request)
        return HTMLResponse(self._page.text, headers=PAGE_HEADERS | {"content-security-policy": self._page.policy})

    async def listing(self, request: Request) -> Response:
        """Rows of running and ended episodes for the live page."""
        self._admit(request)
        episodes, counts = self._episodes, self._episodes.counts
        rows = episodes.board.listing(_number(request, "after", 0))
        facts = {
            "running": f"{episodes.running} of {episodes.most}",
            "ended": f"{counts.ended:,}",
            "left by their client": f"{counts.left:,}",
            "turned away": f"{counts.turned_away:,}",
            "sampled": f"{counts.sampled + episodes.board.sampled:,} tokens",
        }
        return _json(rows | {"facts": list(facts.items())}, headers=DATA_HEADERS)

    async def episode(self, request: Request) -> Response:
        """An episode as it stands, for the live page."""
        self._admit(request)
        packed = await self._episodes.board.packed(request.path_params["name"])
        if packed is None:
            raise RequestError("there is no such episode, or it has not begun", 404, code="no_episode")
        text = await off_loop(UNKNOWN, encoded, packed)  # it may be large, and others are streaming
        return Response(text, headers=DATA_HEADERS, media_type=JSON)

    async def _answer(self, request: Request, read: Callable[[bytes], Exchange]) -> Response:
        self._admit(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise RequestError("the content type must be application/json", 415)  # which no form can send
        exchange = await off_loop(UNKNOWN, read, await self._body(request))
        question = exchange.question
        served = self._find(question.model)
        background = isinstance(exchange, ResponseExchange) and exchange.question.background
        if question.stream or background:
            texts: asyncio.Queue[str | None] = asyncio.Queue()
            task = self._episodes.begin(served, question, Lanes(texts.put_nowait).watch)
            task.add_done_callback(lambda done: texts.put_nowait(None))
            sent = events(exchange, task, texts)
            if background:
                return await _reply(await self._background.begin(exchange.id, task, sent), question.stream)
            return EpisodeStream(task, sent, media_type=EVENTS)
        lanes: list[str] = []
        task = self._episodes.begin(served, question, Lanes(lanes.append).watch)
        episode = spoken(await unless_gone(request, task))
        whole = await off_loop(UNKNOWN, lambda: encoded(exchange.whole(episode, "".join(lanes))))
        return Response(whole, media_type=JSON)

    def _find(self, name: str) -> Served:
        """The model of a name; RequestError without one."""
        if name not in self._served:
            text = f"there is no model {quoted(name)}: there is {', '.join(self._served)}"
            raise RequestError(text, 404, code="model_not_found", param="model")
        return self._served[name]

    def _described(self, name: str) -> dict[str, Any]:
        """A model, as OpenAI lists it."""
        served = self._find(name)
        return {"id": name, "object": "model", "created": self._began, "owned_by": "orgthink", "root": served.base}

    async def _body(self, request: Request) -> bytes:
        """The body, of a bounded size."""
        if int(request.headers.get("content-length", 0)) > LARGEST:
            raise _too_large()
        found = bytearray()
        try:
            async for part in request.stream():
                found += part
                if len(found) > LARGEST:
                    raise _too_large()
        except ClientDisconnect:
            raise RequestError("the client went away", 499) from None
        return bytes(found)

    def _admit(self, request: Request) -> None:
        """RequestError without the key; without any key, for web pages of other sites."""
        if self._key is None and _host(f"//{request.headers.get('host', '')}") not in LOOPBACK:
            raise RequestError("without a key this server is called as localhost or 127.0.0.1 only")
        if self._key is None and _from_elsewhere(request.headers):
            raise RequestError("without a key no web page of another host may call this server", 403)
        given = re.sub("^bearer ", "", request.headers.get("authorization", ""), flags=re.IGNORECASE).strip()
        if self._key is not None and not secrets.compare_digest(given.encode("latin-1"), self._key.encode()):
            raise RequestError("a valid key is missing: Authorization: Bearer KEY", 401, code="invalid_api_key")


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encoded(content), status, headers, JSON)


async def _reply(history: History, stream: bool = False, after: int = -1) -> Response:
    """A response in the background, or a stream of its events behind one of them, whose end does not end it."""
    return (
        StreamingResponse(history.follow(after), media_type=EVENTS)
        if stream
        else Response(await off_loop(UNKNOWN, lambda: encoded(history.response)), media_type=JSON)
    )


def _number(request: Request, name: str, default: int) -> int:
    """A number of the query; RequestError for another text."""
    given = request.query_params.get(name, "")
    if name in request.query_params and not (given.isascii() and given.isdigit() and len(given) < 16):
        raise RequestError(f"{name} must be a number", param=name)
    return int(given or default)


def _too_large() -> RequestError:
    return RequestError(f"the body is larger than {LARGEST:,} bytes", 413, code="too_large")


def _host(url: str) -> str | None:
    """The host in a URL; `None` without one."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _from_elsewhere(headers: Headers) -> bool:
    """Whether a browser sends this from a page of another site; following a link is allowed."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    by_a_link = headers.get("sec-fetch-dest") == "document"
    return (origin is not None and _host(origin) not in LOOPBACK) or (site == "cross-site" and not by_a_link)


async def _refused(request: Request, error: RequestError) -> Response:
    return _json(error.body, error.status, headers=dict(error.headers))


async def _unknown(request: Request, error: HTTPException) -> Response:
    """An unknown path or method."""
    place = quoted(f"{request.method} {request.url.path}")
    text, code = {
        404: (f"there is no {place} here", "unknown_url"),
        405: (f"there is no {place} here: its methods are {(error.headers or {}).get('Allow')}", "method_not_allowed"),
    }.get(error.status_code, (error.detail, None))
    return _json(RequestError(text, error.status_code, code=code).body, error.status_code, headers=error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    return _json(RequestError("the server failed: its log says why", 500, code="bug").body, 500)
