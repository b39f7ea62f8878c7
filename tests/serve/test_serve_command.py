"""Options of `orgthink serve`: settings of several organizations, and the run of an earlier server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
from loopback import MODEL, loopback

from orgthink.cli.serve import Serve
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError


@pytest.mark.parametrize(
    ("setting", "tolerant", "prompts"),
    [
        ("tolerant=false", False, ["demonstrated", "demonstrated"]),
        ("asyncthink.tolerant=false", False, ["demonstrated", "demonstrated"]),
        ("prompts=paper", True, ["paper", "paper"]),
        ("vote.prompts=paper", True, ["demonstrated", "paper"]),
    ],
)
async def test_settings_of_several_organizations(
    tmp_path: Path, setting: str, tolerant: bool, prompts: list[str]
) -> None:
    """A setting without a label is that of each organization that has it."""
    named: Any = {"model": MODEL, "organizations": ("asyncthink", "vote=majority-vote")}
    async with (
        loopback() as server,
        Serve(**named, url=server.url, set=(setting,), out=tmp_path / "run").opened() as (models, _, _),
    ):
        made: list[Any] = [served.organization for served in models.values()]
    assert [one.prompts for one in made] == prompts and made[0].tolerant == tolerant


async def test_a_server_goes_on_in_the_run_of_an_earlier_one(tmp_path: Path) -> None:
    """Also in one whose server was killed while it wrote an episode; not with other organizations."""
    run = tmp_path / "run"
    named: Any = {"model": MODEL, "organizations": ("asyncthink", "one=sequential")}
    async with loopback() as server:
        async with Serve(**named, url=server.url, out=run).opened() as (models, _, folder):
            whole = b"an episode\n"
            folder.episodes_file.write_bytes(whole + whole[:5])
        async with Serve(**named, url=server.url, resume=run).opened() as (again, _, folder):
            assert list(again) == list(models) == ["asyncthink-tiny", "one-tiny"] and folder.path == run
            assert folder.episodes_file.read_bytes() == whole
        for more in ({"organizations": ("asyncthink",)}, {"out": tmp_path / "new"}):
            with pytest.raises(UserError, match="give what it served, asyncthink-tiny, one-tiny, and no --out"):
                async with Serve(**named | more, url=server.url, resume=run).opened():
                    pass
        RunFolder.create(tmp_path / "other", "eval", {})
        with pytest.raises(UserError, match="holds a run of kind eval, not serve"):
            async with Serve(**named, url=server.url, resume=tmp_path / "other").opened():
                pass
