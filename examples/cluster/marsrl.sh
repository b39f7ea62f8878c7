#!/usr/bin/env bash
# MarsRL, Qwen3-30B-A3B-Thinking-2507, 8 nodes of 8 H100. Start a Ray cluster first: `ray start --head` on this node,
# `ray start --address=HEAD:6379` on the others. The folder runs/ lies where all of them see it.
# docs/papers/ says which numbers are the paper's. This script has not been run on GPUs.
set -euo pipefail
[ $# = 2 ] || { echo "usage: $0 MODEL TASK: a folder, math:FILE, math:FILE@1/2 or verl:FILE" >&2; exit 2; }
ray status

# A row has up to 98,304 tokens: 8 GPUs share it, 12,288 each. That needs flash-attn on every node.
orgthink train marsrl-qwen3 --model "$1" --out runs/marsrl-qwen3 \
  --set "rollout.task=$2" sampler_settings.gpu_memory_utilization=0.6 \
  --backend verl --cluster address="${RAY_ADDRESS:-auto}" nodes=8 gpus=8 tensor_parallel=4 \
  actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=8 \
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=12288 \
  actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=12288
