"""A stand-in for a server, to try the commands without a model: `python examples/stub_server.py 8401`.

It speaks Chat Completions and answers questions such as "What is 17 * 14 + 12 * 9?": it multiplies by adding, gets
one product in five wrong, and adds all. Asked to organize, it forks a worker for each product, if there are enough.
A worker multiplies three times and takes the middle.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median_low


def reply(messages: list[dict[str, str]], chance: random.Random) -> str:
    """What it says next in a conversation."""
    last = max((i for i, one in enumerate(messages) if re.search("(Problem|Part): ", one["content"])), default=0)
    products = re.findall(r"(\d+) \* (\d+)", messages[last]["content"])
    if "You lead a team" not in messages[0]["content"] or "(not done" in messages[-1]["content"]:
        times = 3 if "Part: " in messages[last]["content"] else 1
        values = [
            median_low([int(a) * int(b) + chance.choice((0, 0, 0, 0, 10)) for _ in range(times)]) for a, b in products
        ]
        steps = " ".join([str(int(a) * i) for a, b in products for i in range(1, int(b))] * times)
        tag = "RETURN" if times > 1 else "ANSWER"
        return f"{steps} <{tag}> {sum(values)} </{tag}>"
    joined = [
        int(found) for message in messages[last + 1 :] for found in re.findall(r"-?\d+(?= *</JOIN)", message["content"])
    ]
    if not joined:
        forks = [f"<FORK-{i}> Compute {a} * {b}. </FORK-{i}>" for i, (a, b) in enumerate(products, 1)]
        return " ".join((*forks, "<JOIN-1>"))
    if len(joined) < len(products):
        return f"<JOIN-{len(joined) + 1}>"
    return f"The sum is <ANSWER> {sum(joined)} </ANSWER>"


class Handler(BaseHTTPRequestHandler):
    """`/v1/models` and `/v1/chat/completions`, streamed a word at a time."""

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client may close at a tag
            super().handle()

    def do_GET(self) -> None:
        self.begin("application/json")
        self.wfile.write(json.dumps({"object": "list", "data": [{"id": "stub", "object": "model"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chance = random.Random(json.dumps([body.get("seed"), body["messages"]]))
        text = reply(body["messages"], chance)
        words = re.findall(r"\S+\s*", text)
        usage = {"prompt_tokens": 0, "completion_tokens": len(words)}
        if not body.get("stream"):
            self.begin("application/json")
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self.wfile.write(json.dumps({"choices": [choice], "usage": usage}).encode())
            return
        self.begin("text/event-stream")
        for word in words:
            self.send({"choices": [{"index": 0, "delta": {"content": word}}]})
        self.send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.send({"choices": [], "usage": usage})

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def send(self, event: dict) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # many agents may connect at once


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("port", type=int, help="port on 127.0.0.1, such as 8401")
    Server(("127.0.0.1", parser.parse_args().port), Handler).serve_forever()
