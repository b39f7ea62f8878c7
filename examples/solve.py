"""Solve one problem with AsyncThink: `python examples/solve.py`, or on your server with `--url URL`."""

from __future__ import annotations

import argparse

import orgthink


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="an OpenAI-compatible server; without it a small model runs in this process")
    url = parser.parse_args().url
    if url is None:
        problem = next(orgthink.task("countdown-mini").problems("test", seed=0))
        episode = orgthink.solve(problem, "asyncthink", model="pocket-organizer", temperature=0)
    else:
        question = "Which of 2027, 2029 and 2033 are prime?"
        episode = orgthink.solve(question, "asyncthink", url=url, capacity=3, max_tokens=2048)
    for trace in episode.traces:
        print(f"{trace.agent}: {trace.text}\n")
    print(f"answer:\n{episode.answer}\ncritical path: {orgthink.critical_path(episode)} decoding steps")


if __name__ == "__main__":
    main()
