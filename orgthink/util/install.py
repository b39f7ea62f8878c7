"""Packages that are missing, and the pip command that installs them for this installation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orgthink.util.errors import UserError

HERE = Path(__file__).parents[2]
"""Folder that holds the package: a clone, if it was installed with `-e`, else `site-packages`."""


def pip_install(extras: str = "", package: str = "orgthink") -> str:
    """The command that installs extras, such as `local,math`, or a package of `packages/`, such as `orgthink-pocket`.

    It names the clone if orgthink was installed from one: what an index has may be older, or missing.
    """
    names, clone = extras and f"[{extras}]", _clone()
    if clone is None:
        return f"pip install {shlex.quote(package + names)}"
    where = "." if clone == Path.cwd() else str(clone)
    inner = "" if package == "orgthink" else f"/packages/{package.removeprefix('orgthink-')}"
    return f"pip install {'-e ' if clone == HERE else ''}{shlex.quote(where + inner + names)}"


@contextmanager
def needing(extras: str, what: str = "this command") -> Iterator[None]:
    """Around imports of extras: UserError with the command that installs them, if a module is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{what} needs {error.name}: {pip_install(extras)}") from error


def _clone() -> Path | None:
    """The clone that this file is in, or else the one that `pip install FOLDER` was given (PEP 610), if it is there."""
    try:
        origin = json.loads(distribution("orgthink").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    folders = HERE, Path(unquote(urlsplit(origin.get("url", "/")).path))
    return next((folder for folder in folders if (folder / "packages/pocket/pyproject.toml").is_file()), None)


DEMO = f"the demo models and tasks are a package of their own: {pip_install(package='orgthink-pocket')}"
"""How to install the demo models."""
