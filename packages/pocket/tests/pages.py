"""README.md and the pages of docs/ as data: their code blocks, command lines and links, and a server to run them on."""

from __future__ import annotations

import asyncio
import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from loopback import Exchange, Play, Server, says

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENDPOINT = "http://localhost:8000/v1"
"""The server of the reader, as the pages name it."""

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`((?:orgthink|python -m|make) [^`]*--[^`]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        """For the ids of tests."""
        return str(self.page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[Block]:
    """The fenced blocks of a page in one language."""
    return [Block(page, *found) for found in _FENCED.findall(page.read_text()) if found[0] == language]


def commands(page: Path, *, inline: bool = True) -> list[list[str]]:
    """Command lines in the shell blocks of a page and, unless told otherwise, in its text; each split into words."""
    lines = [line for block in blocks(page, "sh") for line in block.text.replace("\\\n", " ").splitlines()]
    text = _FENCED.sub("", page.read_text())
    lines += [" ".join(found.split()) for found in _INLINE.findall(text)] if inline else []
    split = (shlex.split(re.sub(r"(^|\s)#.*", "", line)) for line in lines if "…" not in line)
    return [words for words in split if words and not any(word.isupper() for word in words[1:2])]


def links(page: Path) -> list[str]:
    """Targets of the links of a page that are files."""
    found = _LINK.findall(_FENCED.sub("", page.read_text()))
    return [target for target in found if not target.startswith(("http://", "https://"))]


async def _reply(exchange: Exchange) -> None:
    """What a well-trained model would say to the prompts of the pages."""
    text = "I think: <ANSWER>77</ANSWER>"
    if "This is a subprocess" in exchange.shown:
        text = "<RETURN>2027 and 2029 are prime</RETURN>"
    elif "This is main process" in exchange.shown:
        text = "<FORK-1>test 2027 and 2029</FORK-1> and I test 2033 <JOIN-1>"
    elif "You grade a solution" in exchange.shown:
        text = "Nothing to find. **Correctness**: Correct"
    await says(text)(exchange)


class _Always(list[tuple[str, Play]]):
    """Plays the same for every request."""

    def pop(self, index: int = -1) -> tuple[str, Play]:
        return self[index]


@contextmanager
def endpoint(reply: Play = _reply) -> Iterator[str]:
    """The URL of a server on loopback, in a thread of its own, for code that has an event loop of its own. It plays
    `reply` for every request."""
    server = Server([])
    server.plays = _Always([("", reply)])
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(server.serve, "127.0.0.1", 0), loop).result()
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        loop.call_soon_threadsafe(listening.close)
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
