"""The Dockerfile, without Docker: its commands work in a clean copy, with nothing but what they install.

No image is built here. What stays open is the base image, its packages of Debian, and the demo on a GPU.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from clones import ROOT, clone
from packaging.specifiers import SpecifierSet

ABSENT = re.compile(r"(.*-)?(g\+\+|c\+\+|clang(\+\+)?|cmake|git|cargo|rustc)(-.*)?")
"""Programs that the base image lacks and that the Dockerfile does not install. One locked package needs gcc."""


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its arguments, on one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def arguments(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def test_each_instruction_is_one_that_these_tests_know() -> None:
    names = [name for name, _ in instructions()]
    assert names == ["FROM", "RUN", "RUN", "USER", "WORKDIR", "COPY", "ARG", "RUN", "ENV", "CMD"]
    assert json.loads(arguments("CMD")[0]) == ["make", "demo"]


def test_the_base_image_has_a_python_that_we_support() -> None:
    version = re.fullmatch(r"python:(3\.\d+)-slim-\w+", arguments("FROM")[0])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version is not None and version[1] in SpecifierSet(project["requires-python"])


def test_what_the_demo_needs_of_the_system_is_installed() -> None:
    """bubblewrap, gcc and make; pip brings all else. What is built and run belongs to a user without privileges."""
    system, user = arguments("RUN")[:2]
    assert {"bubblewrap", "gcc", "libc6-dev", "make"} <= set(system.split()) and "--uid 1000" in user
    assert arguments("USER") == ["1000:1000"] and arguments("COPY") == ["--chown=1000:1000 . ."]
    assert arguments("WORKDIR") == ["/orgthink"] and user.endswith("--owner 1000 --group 1000 /orgthink")


def test_environments_and_runs_stay_out_of_the_image() -> None:
    ignored = {f"**/{line.strip('/')}" for line in (ROOT / ".gitignore").read_text().split()}
    assert {*(ROOT / ".dockerignore").read_text().split()} == {*ignored, "**/.git"}


def programs(folder: Path) -> str:
    """A folder with this Python and the programs of the system, but without those that the image lacks."""
    folder.mkdir()
    real = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(str(real))} "$@"\n')
    (folder / "python3").chmod(0o755)
    for program in (file for place in ("/usr/bin", "/bin", "/usr/sbin", "/sbin") for file in Path(place).iterdir()):
        if not ABSENT.fullmatch(program.name) and not (folder / program.name).exists():
            (folder / program.name).symlink_to(program)
    return str(folder)


def of_the_network() -> dict[str, str]:
    """Where pip finds packages."""
    prefixes = ("PIP_", "SSL_", "HTTP", "http", "NO_PROXY", "no_proxy", "ALL_PROXY", "REQUESTS_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


@pytest.mark.wheel
def test_its_commands_work_in_a_clean_copy(tmp_path: Path) -> None:
    folder, home = clone(tmp_path / "orgthink"), tmp_path / "home"
    home.mkdir()
    environment = of_the_network() | {"HOME": str(home), "PATH": programs(tmp_path / "bin")}
    assert shutil.which("git", path=environment["PATH"]) is None
    name, _, default = arguments("ARG")[0].partition("=")
    if wheels := os.environ.get("PIP_FIND_LINKS"):  # PyTorch for CPUs lies there
        default = f"--find-links {wheels}"
    environment[name] = default.strip('"')
    (setup,) = (command for command in arguments("RUN") if "make setup" in command)
    subprocess.run(setup, shell=True, cwd=folder, env=environment, check=True, timeout=1800)
    (variable,) = arguments("ENV")
    path, _, value = variable.partition("=")
    environment[path] = value.strip('"').replace("/orgthink", str(folder)).replace("$PATH", environment["PATH"])
    shown = subprocess.run(
        json.loads(arguments("CMD")[0]),
        cwd=folder, env=environment, check=True, timeout=1800, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    assert "AsyncThink with" in shown and "Solver, verifier and corrector solve" in shown
    assert (folder / "runs" / "demo" / "view.html").is_file()
    assert "orgthink 0" in subprocess.run(
        ["orgthink", "--version"], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout  # fmt: skip
