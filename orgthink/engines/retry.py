"""When to ask a server again, and how long to wait before."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server, and how often to ask it."""

    connect: float = 10.0
    """Seconds to get a connection."""
    read: float = 120.0
    """Seconds without a byte: until the first token, and between two."""
    attempts: int = 5
    """Times a request is made, the first one included."""
    first_delay: float = 0.5
    """Seconds before the second attempt, doubled for each further one."""
    longest_delay: float = 60.0
    """Most seconds between two attempts. A server that asks for more is not asked again."""

    def delay(self, attempt: int, asked: float | None = None) -> float | None:
        """Seconds to wait after the failed attempt of this number (from 1); `None` to give up.

        What the server asked for is kept; else exponential, with jitter over its upper half.
        """
        if attempt >= self.attempts or (asked or 0.0) > self.longest_delay:
            return None
        if asked is not None:
            return asked
        return min(self.first_delay * 2 ** (attempt - 1), self.longest_delay) * random.uniform(0.5, 1.0)


def busy(status: int) -> bool:
    """Whether an HTTP status says that the same request may be answered later."""
    return status in (408, 429) or status >= 500


def retry_after(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, given as seconds or as an HTTP date; `None` if it does not."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None
