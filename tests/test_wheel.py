"""The wheels in clean environments, without make: what `pip install` brings, and the README's quickstarts in them.

Needs a package index (`make test-wheel`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import loopback, says

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
(COMMAND,) = re.findall(r"^orgthink run .*--url.*$", README, re.MULTILINE)
TORCH = "torch==2.13.0"
"""The version of `make setup`, whose build for CPUs is installed from local wheels."""
HEAVY = re.compile(r"torch|transformers|vllm|tokenizers|nvidia|cuda|triton", re.IGNORECASE)

pytestmark = pytest.mark.wheel


class Environment:
    """A virtual environment with nothing in it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder, self.python = folder, str(folder / "bin" / "python")

    def run(self, *command: str, code: int = 0) -> str:
        """Its output, or its errors if it should fail. The environment sees nothing of the one that runs the tests."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OPENAI"))}
        done = subprocess.run(command, cwd=self.folder, env=clean, capture_output=True, text=True, timeout=900)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    def install(self, *what: str) -> None:
        self.run(self.python, "-m", "pip", "install", "--quiet", *what)

    def packages(self) -> set[str]:
        return {one["name"] for one in json.loads(self.run(self.python, "-m", "pip", "list", "--format", "json"))}


def wheel(folder: Path, out: Path) -> str:
    """The path of the wheel of a package: of the folder `DIST`, such as that of a release, else built here."""
    if "DIST" in os.environ:
        name = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
        (file,) = (ROOT / os.environ["DIST"]).glob(f"{name.replace('-', '_')}-*.whl")
        return str(file)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (file,) = out.glob("*.whl")
    return str(file)


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of a server that answers one request, on an event loop of its own."""
    ready, url, over = threading.Event(), list[str](), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def serve() -> None:
        async with loopback(says("<ANSWER> 2027 and 2029 </ANSWER>")) as one:
            url.append(one.url)
            over.append((asyncio.get_running_loop(), asyncio.Event()))
            ready.set()
            await over[0][1].wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(10)
    yield url[0]
    loop, event = over[0]
    loop.call_soon_threadsafe(event.set)
    thread.join(10)


def test_the_wheel_alone_works_with_an_endpoint(tmp_path: Path, server: str) -> None:
    environment = Environment(tmp_path / "env")
    environment.install(wheel(ROOT, tmp_path / "core"))
    assert not [name for name in environment.packages() if HEAVY.search(name)]
    words = shlex.split(COMMAND.replace("http://localhost:8000/v1", server))
    assert server in words
    assert "2027 and 2029" in environment.run(str(tmp_path / "env" / "bin" / words[0]), *words[1:])
    assert "asyncthink" in environment.run(str(tmp_path / "env" / "bin" / "orgthink"), "run", "--help")


def test_the_wheels_of_the_packages_work(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env")
    environment.install(TORCH)
    packages = [wheel(ROOT / "packages" / name, tmp_path / name) for name in ("pocket", "arena")]
    environment.install(wheel(ROOT, tmp_path / "core") + "[local]", *packages)
    out = environment.run(environment.python, "-c", BLOCK)
    assert "4 of 4" in out and "critical path" in out
    assert "puppeteer" in environment.run(str(tmp_path / "env" / "bin" / "orgthink"), "list", "organizations")


MATHEMATICS = "import orgthink; print(next(orgthink.task('math:rows.jsonl').problems('test', 0)).statement)"


@pytest.mark.parametrize("source", ["wheel", "folder", "editable"])
def test_the_command_of_a_message_installs_what_is_missing(source: str, tmp_path: Path) -> None:
    """Whether orgthink came from an index, by `pip install .` or by `pip install -e .`."""
    environment = Environment(tmp_path / "env")
    what = {"wheel": [wheel(ROOT, tmp_path / "core")], "folder": [str(ROOT)], "editable": ["-e", str(ROOT)]}[source]
    environment.install(*what)
    (environment.folder / "rows.jsonl").write_text('{"problem": "What is 6 * 7?", "answer": "42"}')
    missing = environment.run(environment.python, "-c", MATHEMATICS, code=1)
    (command,) = re.findall(r"needs math-verify: pip (install .*)$", missing, re.M)
    environment.run(environment.python, "-m", "pip", *shlex.split(command))
    assert "What is 6 * 7?" in environment.run(environment.python, "-c", MATHEMATICS)
