"""`orgthink serve` in a process of its own, for clients."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx2

KEY = "a-key"


class Server(NamedTuple):
    """A server in a process of its own."""

    url: str
    environment: dict[str, str]
    """That of clients which take their settings from it."""

    def counters(self) -> dict[str, int]:
        text = httpx2.get(f"{self.url[:-3]}/metrics", headers={"authorization": f"Bearer {KEY}"}).text
        return {name: int(value) for name, value in re.findall(r"^orgthink_(\w+) (\d+)$", text, re.M)}


@contextmanager
def served(*options: str) -> Iterator[tuple[Server, subprocess.Popen[str]]]:
    """A server with these options."""
    command = [sys.executable, "-m", "orgthink", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"ORGTHINK_API_KEY": KEY})
    try:
        assert process.stdout is not None
        found = re.search(r"http://127.0.0.1:\d+/v1", process.stdout.readline())
        assert found is not None
        quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        environment = os.environ | quiet | {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": found[0]}
        yield Server(found[0], environment), process
    finally:
        process.terminate()
        process.wait(60)
