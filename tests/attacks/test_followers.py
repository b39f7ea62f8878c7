"""Whoever reads the page of `view --serve`: slowly, or by an address that is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import planned

from orgthink.cli.following import Following
from orgthink.record.folder import RunFolder

BESIDE = "A reader of the page holds nobody else up, and every request gets an answer."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Following]:
    folder = RunFolder.create(tmp_path / "run", "eval", planned())
    with Following(folder, 0, lambda: "x" * 30_000_000) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


def opened(server: Following, path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=15)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{server.server_port}\r\n\r\n".encode())
    return connection


@each(Attack("a reader takes the page of all episodes byte by byte", BESIDE, "others are answered meanwhile", "/all"))
def test_a_slow_reader(attack: Attack, server: Following) -> None:
    with opened(server, attack.given) as slow:
        assert slow.recv(1) == b"H", "its page is being sent"
        with opened(server, "/look") as other:
            assert b" 200 OK" in other.recv(100)


@each(
    Attack("an address with an open bracket", BESIDE, "400", ("http://[", b" 400 ")),
    Attack("an address with a character that becomes a slash", BESIDE, "404", ("//a%E2%84%80b/", b" 404 ")),
    Attack("an episode of 5,000 digits", BESIDE, "404", ("/episode?number=" + "9" * 5_000, b" 404 ")),
)
def test_an_address_that_is_none(attack: Attack, server: Following, capsys: pytest.CaptureFixture[str]) -> None:
    path, status = attack.given
    with opened(server, path) as connection:
        assert status in connection.recv(100)
    assert capsys.readouterr().err == ""
