"""Serve an organization as a model and ask it with the standard library: `python examples/serve.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

PORT = 8317
SERVER = [sys.executable, "-m", "orgthink", "serve", "--model", "pocket-organizer", "--port", str(PORT)]


def ask(path: str, body: dict | None = None) -> dict:
    """A GET request, or a POST request with a JSON body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def models() -> list[str]:
    """Names of the served organizations, as soon as the server answers."""
    for _ in range(120):
        try:
            return [model["id"] for model in ask("models")["data"]]
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    raise SystemExit("the server did not answer within a minute")


def main() -> None:
    server = subprocess.Popen(SERVER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        name = models()[0]
        question = "Numbers: 5, 9, 10, 12, 14. Target: 11."
        reply = ask("chat/completions", {"model": name, "messages": [{"role": "user", "content": question}]})
        print(name, reply["choices"][0]["message"]["content"], reply["usage"], sep="\n")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
