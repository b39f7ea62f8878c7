"""`orgthink serve`: organizations as models, for any client of OpenAI's interfaces."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from orgthink.cli.notes import ignored_server, note
from orgthink.cli.options import Options
from orgthink.cli.tracing import Around, Traced
from orgthink.engines import Engines
from orgthink.evaluate.evaluation import OrganizationSpec
from orgthink.record.folder import RunFolder, dated
from orgthink.runtime import Backing
from orgthink.runtime.clock import run_main
from orgthink.util.errors import UserError, pick
from orgthink.util.redaction import conceal
from orgthink.util.tabular import toml_tables
from orgthink.util.terminal import show
from orgthink.util.validation import typed

if TYPE_CHECKING:
    from orgthink.serve.episodes import Served

KEY = "ORGTHINK_API_KEY"


@dataclass(frozen=True, kw_only=True)
class Serve(Traced, Options):
    """Serve organizations as models named ORGANIZATION-MODEL, at /v1/chat/completions and /v1/responses.

    Every episode is stored: the page at / shows them while they run, and `orgthink view DIR` shows them afterwards.
    """

    organizations: tuple[str, ...] = ("asyncthink",)
    """Organizations to serve."""
    more: Annotated[Path | None, arg(metavar="FILE")] = None
    """TOML file with further models: a table for each, whose name is the model's, with `organization` and the options
    above."""
    host: str = "127.0.0.1"
    """Address to listen at."""
    port: int = 8000
    """Port to listen at; 0 takes a free one."""
    api_key: str | None = None
    """Key that clients must send; without it that of ORGTHINK_API_KEY. Needed where other machines can call."""
    concurrency: int = 64
    """Episodes at once; further requests get the status 429."""
    no_page: bool = False
    """Without the live page at /, on which whoever may call sees the episodes of all clients."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """New run folder; without it one under runs/."""

    def __call__(self) -> int:
        key = (self.api_key or os.environ.get(KEY) or "").strip() or None
        if key is None and self.host not in ("127.0.0.1", "localhost", "::1"):
            raise UserError(f"--host {self.host} can be called by others: give --api-key, or set {KEY}")
        if self.concurrency < 1:
            raise UserError(f"--concurrency {self.concurrency}: at least one episode must run")
        if find_spec("uvicorn") is None or find_spec("starlette") is None:
            raise UserError('serving needs the extra: pip install "orgthink[serve]"')
        conceal(key or "")
        run_main(self._serve(key, self.traced()))
        return 0

    async def _serve(self, key: str | None, traced: Around) -> None:
        from orgthink.serve.app import application, server
        from orgthink.serve.episodes import ServedEpisodes

        more = _tables(self.more)
        note(ignored_server(self.spec(), self.model))
        with self._listening() as place:
            async with Engines() as engines:
                models = await self._models(more, engines)
                folder = RunFolder.create(self.out or dated("serve"), "serve", {"models": list(models)})
                with traced(folder), folder.journal(redo=None) as journal:
                    episodes = ServedEpisodes(journal, self.concurrency)
                    app = application(models, episodes, key=key, page=not self.no_page)
                    port = place.getsockname()[1]
                    show(f"{', '.join(models)} at http://{self.host}:{port}/v1, stored in {folder.path}")
                    for number in (signal.SIGTERM, signal.SIGINT):  # the server raises them again at its end
                        signal.signal(number, lambda *_: None)
                    await server(app).serve([place])
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an episode may have no end: another signal is one
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    await episodes.drain()

    def _listening(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=1024)
        except (OSError, OverflowError) as error:
            raise UserError(f"nothing can listen at {self.host}, port {self.port}: {error}") from error

    async def _models(self, more: Mapping[str, Configured], engines: Engines) -> dict[str, Served]:
        """What is served, by the names of the models."""
        found: dict[str, Served] = {}
        for label, times in Counter(OrganizationSpec(each).label for each in self.organizations).items():
            if times > 1:
                raise UserError(f"--organizations has {label} twice: a file for --more gives each a name of its own")
        for organization in self.organizations:
            one = await _served(organization, self, engines)
            found[f"{one.organization.name}-{one.base}"] = one
        for name, options in more.items():
            if name in found:
                raise UserError(f"{self.more}: {name} is served already")
            found[name] = await _served(options.organization, options, engines)
        return found


@dataclass(frozen=True, kw_only=True)
class Configured(Options):
    """A model of a TOML file."""

    organization: str = "asyncthink"
    """Who answers."""


def _tables(file: Path | None) -> dict[str, Configured]:
    """The models of a TOML file. UserError that names it."""
    if file is None:
        return {}
    tables = toml_tables(file)
    options = {field.name: field.name for field in fields(Configured)} | {"sampling": "role_sampling"}
    found: dict[str, Configured] = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"{file}: {name} is not the table of a model")
        for option in table:
            pick(f"option of {name} in {file}", option, dict.fromkeys(options))
        named = {options[option]: value for option, value in table.items()}
        found[name] = typed(Configured, named, f"{file}, {name}")
    return found


async def _served(organization: str, options: Options, engines: Engines) -> Served:
    """An organization as the options set it, with open engines."""
    from orgthink.serve.episodes import Served

    organized = options.organize((organization,))
    ((label, how),) = organized.items()
    sampling = options.sampling(organized)
    spec = await engines.named(options.spec())
    roles = {
        name: Backing(await engines.get(role.engine), role.sampling) for name, role in options.backed(organized).items()
    }
    default = Backing(await engines.get(spec), sampling)
    return Served(Path(spec.model or "model").name, how.named(label), default, roles, options.limits(organized))
