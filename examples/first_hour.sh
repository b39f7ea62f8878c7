#!/usr/bin/env bash
# A new user's first hour, at most two commands a step: clone the repository, make a virtual environment, and run this.
# URL=http://localhost:8000/v1 takes your server in place of the stand-in. SKIP lists steps to leave out: SKIP="1 2".
set -euo pipefail
cd "$(dirname "$0")/.."
export OUT=${OUT:-runs/first-hour} PORT=${PORT:-8401}
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
step() { printf '\n== %s\n' "$*"; [[ " ${SKIP:-} " != *" ${1%.} "* ]]; }

if step 1. Install from the clone; then
  pip install '.[local,math,serve,notebooks]' ./packages/pocket openai nbconvert ipykernel tensorboard
fi

if step 2. The demo; then
  orgthink demo --out "$OUT/demo"
fi

if [[ -z ${URL:-} ]]; then
  export URL=http://127.0.0.1:$PORT/v1
  python examples/stub_server.py "$PORT" &
fi

if step 3. Your questions: one thinker, a vote at equal tokens, AsyncThink; then
  orgthink eval --task examples/products.jsonl --organizations asyncthink sequential majority-vote \
    --match tokens --url "$URL" --capacity 4 --n 20 --out "$OUT/mine"
  orgthink view "$OUT/mine"
fi

if step 4. The table again, and a plot of accuracy against the critical path; then
  orgthink measure "$OUT/mine"
  python -c 'import sys, orgthink; orgthink.load_run(sys.argv[1]).plot().savefig(sys.argv[2])' "$OUT/mine" "$OUT/plot.svg"
fi

if step 5. The same in a notebook: rows in Python, organizations, table, plot, an episode; then
  cp examples/first_run.ipynb "$OUT"
  jupyter nbconvert --to html --execute "$OUT/first_run.ipynb"
fi

if step 6. An organization as a model, asked in the background by the client of OpenAI; then
  orgthink serve --url "$URL" --organizations asyncthink --capacity 4 --port $((PORT + 1)) --out "$OUT/served" &
  python examples/background.py "http://127.0.0.1:$((PORT + 1))/v1"
fi

if step 7. A run that TensorBoard follows: its numbers, or all curves with tensorboard --logdir; then
  orgthink eval --task examples/products.jsonl --organizations asyncthink --url "$URL" --capacity 4 --n 20 \
    --log tensorboard --out "$OUT/logged"
  tensorboard --inspect --logdir "$OUT/logged/tensorboard"
fi
