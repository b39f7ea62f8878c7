"""The locks hold what pyproject.toml asks for, each file with its hash; the public CI runs what `.ci/run` runs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "requirements"
LOCKS = sorted(path.stem for path in FOLDER.glob("*.lock"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
TORCH = Requirement((FOLDER / "torch.txt").read_text().splitlines()[-1])
OURS = {".": "", "./packages/pocket": "local", "./packages/arena": ""}
"""The extras of orgthink that our packages ask for by themselves."""


def wanted(source: Path) -> Iterator[Requirement]:
    """What a file of requirements asks for, our extras and the files that it includes written out."""
    for line in source.read_text().splitlines():
        if line.startswith("-r "):
            yield from wanted(FOLDER / line.removeprefix("-r "))
        elif line.startswith("-e "):
            folder, _, extras = line.removeprefix("-e ").rstrip("]").partition("[")
            names = [name for name in (extras or OURS[folder]).split(",") if name]
            ours = PROJECT["dependencies"] + [one for name in names for one in PROJECT["optional-dependencies"][name]]
            yield from map(Requirement, ours)
        elif line and not line.startswith(("#", "./")):
            yield Requirement(line)


def locked(name: str) -> dict[str, list[Requirement]]:
    """The entries of a lock by package. A package has several where Python versions differ."""
    entries: dict[str, list[Requirement]] = {}
    for line in (FOLDER / f"{name}.lock").read_text().splitlines():
        if line and not line.startswith(("#", " ")):
            entry = Requirement(line.removesuffix(" \\"))
            entries.setdefault(canonicalize_name(entry.name), []).append(entry)
    return entries


def only(entry: Requirement) -> str:
    """The one version that an entry allows."""
    (one,) = entry.specifier
    assert one.operator == "==" and "*" not in one.version, f"{entry} is not one version"
    return one.version


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_what_its_source_asks_for(name: str) -> None:
    entries = locked(name)
    for requirement in wanted(FOLDER / f"{name}.txt"):
        for entry in entries.get(canonicalize_name(requirement.name), [TORCH] if requirement.name == "torch" else []):
            assert requirement.specifier.contains(only(entry)), f"{entry}, but {requirement} is asked for: make lock"
            break
        else:
            pytest.fail(f"{name}.lock lacks {requirement}: make lock")


@pytest.mark.parametrize("name", LOCKS)
def test_every_entry_of_a_lock_is_one_version_with_hashes(name: str) -> None:
    text = re.sub(r" *#.*", "", (FOLDER / f"{name}.lock").read_text()).replace("\\\n", "")
    for line in filter(str.strip, text.splitlines()):
        entry, *hashes = re.split(r" +--hash=sha256:", line.rstrip())
        only(Requirement(entry))
        assert hashes and all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes), line


def test_the_demo_the_tests_and_each_engine_have_a_lock() -> None:
    assert {"build", "dev", "vllm", "verl", "trl", "clients", "proxy", "trackers", "gpu", "verl-gpu"} == set(LOCKS)
    assert {"uv", "hatchling"} <= locked("build").keys() and {"ruff", "pyrefly", "pytest"} <= locked("dev").keys()
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^locked = .* --no-deps --require-hashes -r ", makefile, re.MULTILINE)
    assert re.search(r'^COMPILE = .* --exclude-newer "3 days" ', makefile, re.MULTILINE)
    for name in LOCKS:
        assert f"-o requirements/{name}.lock" in makefile, f"make lock does not write {name}.lock"
        assert name == "build" or f",{name})" in makefile, f"nothing installs {name}.lock"


def test_environments_for_gpus_hold_what_the_cluster_scripts_need() -> None:
    """Their tasks are `math:FILE`, which math-verify grades, and `verl:FILE`, which may be a parquet file."""
    line = re.search(r"pip install -e '\.\[(.+?)]' 'verl\[vllm]", (ROOT / "docs" / "your_gpus.md").read_text())
    assert line is not None and {"verl", "math", "data"} <= {*line[1].split(",")}
    for extra in ("math", "data"):
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            for name in ("gpu", "verl-gpu", "verl"):
                assert canonicalize_name(requirement.name) in locked(name), f"{name}.lock lacks {requirement}"


def test_there_is_one_version_of_torch() -> None:
    (metadata,) = tomllib.loads((FOLDER / "uv.toml").read_text())["dependency-metadata"]
    assert TORCH in list(wanted(FOLDER / "vllm-overrides.txt"))
    assert metadata["version"] == only(TORCH) == only(locked("gpu")["torch"][0])


EVERY = [PYPROJECT["build-system"]["requires"], PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]


@pytest.mark.parametrize("text", sorted({text for group in EVERY for text in group}))
def test_a_dependency_is_bounded_on_both_sides(text: str) -> None:
    operators = {one.operator for one in Requirement(text).specifier}
    assert operators in ({"=="}, {">=", "<"}), text


def workflow(name: str) -> str:
    """A workflow of the public CI. It may read the repository and nothing else, and names actions by their commits: a
    tag can be moved."""
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    for action in re.findall(r"uses: (.+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert text.count("permissions:") == 1 and "\npermissions:\n  contents: read\n\n" in text
    assert "- run: make ${{ matrix.target }}\n" in text and "secrets." not in text
    return text


def test_the_public_ci_runs_what_ours_runs() -> None:
    """Ours runs two targets at once, so their orders differ; the public one makes a machine for each."""
    lines = re.findall(r"^ *stages (\S.*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    ours = [target for line in lines for target in line.split()]
    (public,) = re.findall(r"target: \[(.+)]", workflow("ci"))
    assert sorted(ours) == sorted(["setup", "sandbox", "smollm2", *public.split(", ")])
    assert "run: make smollm2\n" in workflow("ci")


def test_a_weekly_job_runs_the_oldest_and_the_newest_releases() -> None:
    text = workflow("versions")
    assert re.search(r'cron: "\d+ \d+ \* \* \d"', text)
    assert re.findall(r"target: (\S+)$", text, re.MULTILINE) == ["test-lowest", "test-newest"]
