"""Addresses of servers and of the proxies before them, as somebody types them or as the environment has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.serving import serving
from attacks.test_secrets import PASSWORD, hides
from small import TASK_OF_THREE

from orgthink.cli import main
from orgthink.util import redaction

pytestmark = pytest.mark.thorough

ADDRESS = "An address that cannot be is one line, before anything is sent or written."
LINE = "one line, exit code 2"
STORED = "A password in an address is told from the rest, or the address is refused: no file and no message has it."
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a proxy nor a key is in the environment, and nothing is hidden yet."""
    monkeypatch.setattr(redaction, "_forms", ())
    for name in (*PROXIES, *map(str.lower, PROXIES), "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def evaluated_at(url: str, *options: str) -> int:
    """The exit code of an evaluation by a server."""
    task = ["--task", TASK_OF_THREE, "--n", "1", "--organizations", "sequential"]
    return main(["eval", "--url", url, "--model", "tiny", *task, "--out", "run", *options])


@each(
    Attack("a URL with port 99999", ADDRESS, LINE, "http://127.0.0.1:99999/v1"),
    Attack("a URL with port −1", ADDRESS, LINE, "http://127.0.0.1:-1/v1"),
    Attack("a URL that ends in a space", STORED, LINE, f"http://me:{PASSWORD}@127.0.0.1:1/v1 "),
)
def test_an_address(attack: Attack, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated_at(attack.given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert hides(line, PASSWORD) and not Path("run").exists()


PROXY = "A proxy that cannot be used is one line that names its variable, and not its login."


@each(
    Attack("the environment names a SOCKS proxy", PROXY, LINE, ("ALL_PROXY", "socks5://127.0.0.1:1")),
    Attack("a SOCKS proxy with a login", PROXY, LINE, ("HTTP_PROXY", f"socks5h://me:{PASSWORD}@127.0.0.1:1")),
    Attack("a proxy of FTP", PROXY, LINE, ("HTTP_PROXY", f"ftp://me:{PASSWORD}@127.0.0.1:1")),
)
def test_a_proxy_that_is_none(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, value = attack.given
    monkeypatch.setenv(name, value)
    with serving() as server:
        assert evaluated_at(server.url) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line and hides(line, PASSWORD)


WORDS = "A run whose settings hold a secret as a word, which could not be resumed, does not begin."


@each(
    Attack("the key is the name of an organization", WORDS, LINE, "sequential"),
    Attack("the key is the server's host", WORDS, LINE, "127.0.0.1"),
    Attack("the key is the task's name", WORDS, LINE, "small.py:THREE"),
)
def test_a_key_that_is_a_word(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", attack.given)
    with serving() as server:
        assert evaluated_at(server.url) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert attack.given not in line and not Path("run/config.json").exists()
