"""Any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from difflib import get_close_matches
from itertools import count
from typing import Any, Literal

import httpx2

from orgthink.engines import wire
from orgthink.engines.engine import Chunk, Context, EngineError, EngineUnavailable, Finish
from orgthink.engines.retry import Patience, retry_after
from orgthink.engines.stops import StopFinder
from orgthink.engines.tokenizer import Tokenizer
from orgthink.engines.wire import Mode
from orgthink.episode import Message, Origin, Sampling, Span

log = logging.getLogger(__name__)


def from_environment(environ: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """`OPENAI_BASE_URL` and `OPENAI_API_KEY`, where set."""
    return environ.get("OPENAI_BASE_URL") or None, environ.get("OPENAI_API_KEY") or None


class EndpointEngine:
    """A model behind a URL. `open` finds out what the server can do.

    Closing a stream closes its connection, at which a server stops decoding; how soon is the server's affair.
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
        """Most callers want `open`."""
        self.url = _base(url)
        self.model = ""
        self.mode = Mode.CHAT
        self.models: tuple[str, ...] = ()
        """Those the server has; empty if it does not tell."""
        self.requests = 0
        """Requests made, again ones included."""
        self.retries = 0
        """Of these, again ones."""
        self._key, self._tokenizer, self._patience = api_key, tokenizer, patience or Patience()
        self._room: int | None = None
        """Context of the model in tokens, if the server tells."""
        self._keeps_stops = False
        """Whether a stop text that the server is told of stays in its answer."""
        self._refused: set[str] = set()
        """Optional fields that the server does not take."""
        self._places = asyncio.Semaphore(concurrency)
        timeout = httpx2.Timeout(self._patience.read, connect=self._patience.connect, pool=None)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx2.AsyncClient(base_url=url_slash(url), headers=headers, timeout=timeout)

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
        """Ask a server for its models, and for one token in each mode that may do until one does.

        `model` may be left out where the server has one. `tokens` mode needs the model's tokenizer; `auto` prefers it,
        then `chat`. At most `concurrency` streams are open at once, others wait.
        Raises EngineUnavailable with what to do.
        """
        engine = cls(url, api_key=api_key, tokenizer=tokenizer, patience=patience, concurrency=concurrency)
        try:
            await engine._meet(model, mode)
        except BaseException:
            await engine.aclose()
            raise
        return engine
