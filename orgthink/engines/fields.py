"""Fields of requests that a server does not take: found out once, and left out from then on."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)

OPTIONAL = frozenset(
    {"include_stop_str_in_output", "return_token_ids", "stream_options", "logprobs", "parallel_tool_calls"}
)
"""Fields that a request can do without, where a server refuses them."""


class Fields:
    """What one server takes."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without the fields that the server does not take."""
        fit = {name: value for name, value in body.items() if name not in self._refused}
        if "max_tokens" in self._refused:
            fit["max_completion_tokens"] = body["max_tokens"]
        return fit

    def learn(self, status: int, said: str, sent: dict[str, Any]) -> bool:
        """Whether the server refused what was sent for fields that we can do without; they are left out from now on."""
        if status not in (400, 403, 422):
            return False
        named = {name for name in OPTIONAL if name in said and name in sent}
        if "max_completion_tokens" in said and "max_tokens" in sent:
            named.add("max_tokens")
        if named - self._refused:
            log.info("the server takes no %s", ", ".join(sorted(named)))
        self._refused |= named
        return bool(named)
