"""Responses of HTTP servers: read up to a limit, with what their status and their headers ask for."""

from __future__ import annotations

import json
import re
import time
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httpx2

from orgthink.util.redaction import redact
from orgthink.util.terminal import excerpt

LARGEST_BODY = 64 * 2**20
"""Bytes of a response that are read, unless the caller allows others. A stream is read event by event."""

OVERLOADED = (429, 503)
"""Statuses of a server that gets more requests at once than it takes."""

MISSING = (501, 505)
"""Statuses of a server that lacks what a request is for."""

LARGEST_COMPLAINT = 2**16
"""Bytes that are read of a response with a status other than 200."""

LARGEST_PAGE = 2**13
"""Characters of an HTML page in which its text is looked for: the search may take the square of it."""

_TAGS = re.compile(r"<(style|script|title).*?</\1>|<[a-zA-Z/!][^>]*>", re.DOTALL | re.IGNORECASE)
"""What is no text in an HTML page; its title says the same as its heading."""


class HttpResponse(NamedTuple):
    """A complete response."""

    status: int
    """HTTP status."""
    body: bytes
    """Content."""
    retry_after: float | None = None
    """Seconds until the server accepts the request again, by its Retry-After header."""
    location: str | None = None
    """Where a redirect points to."""

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode(errors="replace")

    @property
    def busy(self) -> bool:
        """Whether the status means that the same request may succeed soon. A spent quota is not refilled soon, and what
        a server lacks it does not get."""
        failed = self.status in (408, 429) or (self.status >= 500 and self.status not in MISSING)
        return failed and not self.without_quota

    @property
    def overloaded(self) -> bool:
        """Whether the status asks for fewer requests at once."""
        return self.status in OVERLOADED and self.busy

    @property
    def without_quota(self) -> bool:
        """Whether the account behind the key may not send more."""
        return self.status == 402 or (self.status == 429 and "insufficient_quota" in self.text)


class TooLarge(Exception):
    """A response is larger than the caller allows."""


async def read(response: httpx2.Response, most_bytes: int | None = None) -> HttpResponse:
    """Read the complete response, and the beginning of one whose status is not 200. Raises TooLarge."""
    body, most = bytearray(), most_bytes or LARGEST_BODY
    async for part in response.aiter_bytes():
        body += part
        if response.status_code != 200 and len(body) > LARGEST_COMPLAINT:
            break
        if len(body) > most:
            raise TooLarge(f"an answer of more than {most} bytes")
    headers = response.headers
    return HttpResponse(
        response.status_code, bytes(body), retry_after(headers.get("retry-after")), headers.get("location")
    )


def retry_after(header: str | None) -> float | None:
    """The delay of a Retry-After header, which is a number of seconds or an HTTP date; `None` if it is neither."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return None if seconds != seconds else max(0.0, seconds)


def complaint(body: str) -> str:
    """The error message in the body of a response, on one line."""
    try:
        raw = json.loads(body)
        found = raw.get("error") or raw.get("message") or raw.get("detail") or raw
        body = str(found.get("message") or json.dumps(found) if isinstance(found, dict) else found)
    except (ValueError, AttributeError, RecursionError):
        body = _TAGS.sub(" ", redact(body)[:LARGEST_PAGE])  # of a proxy
    return excerpt(body) or "nothing"
