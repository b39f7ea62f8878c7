#!/usr/bin/env bash
# AsyncThink on mathematics, Qwen3-4B, one node of 8 H200: the cold start on one GPU, reinforcement learning on all.
# docs/papers/ says which numbers are the paper's. This script has not been run on GPUs.
set -euo pipefail
[ $# = 3 ] || { echo "usage: $0 MODEL PAIRS TASK: a folder, a file of pairs, math:FILE, math:FILE@1/2 or verl:FILE" >&2; exit 2; }
cold=runs/asyncthink-qwen3-math-sft

orgthink train asyncthink-qwen3-math-sft --model "$1" --pairs "$2" --set batch_tokens=4096 --out "$cold"

orgthink train asyncthink-qwen3-math --model "$cold/checkpoints/step-000400/model" --out runs/asyncthink-qwen3-math \
  --set "rollout.task=$3" sampler_settings.gpu_memory_utilization=0.6 \
  --backend verl --cluster nodes=1 gpus=8 tensor_parallel=1
