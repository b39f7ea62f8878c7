"""Ask a served organization with the `openai` client in background mode: `python examples/background.py URL`.

The server keeps the response: the connection may end, and the server may even be restarted.
"""

from __future__ import annotations

import sys
import time

from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=8)  # the server may still be starting
model = client.models.list().data[0].id
response = client.responses.create(model=model, input="What is 17 * 14 + 12 * 9?", background=True)
print(response.id, response.status)
while response.status in ("queued", "in_progress"):
    time.sleep(0.2)
    response = client.responses.retrieve(response.id)
print(response.status, response.output_text)
