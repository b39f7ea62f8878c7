#!/usr/bin/env bash
# MarsRL, Qwen3-30B-A3B-Thinking-2507. NODES=1: 8 H200 and reduced budgets. NODES=8: 64 H100 and the paper's budgets; start a
# Ray cluster first: `ray start --head` on this node, `ray start --address=HEAD:6379` on the others. runs/ and the model lie
# where all nodes see them. See docs/your_gpus.md. The same command again goes on where it stopped. Other options, such as
# --dry-run, go to the training. This script has not been run on GPUs.
#   SETTINGS="NAME=VALUE …"  more settings
#   CLUSTER="NAME=VALUE …"   more settings of its cluster, and of verl
#   RUNS=FOLDER              the run folder lies there, in place of runs
#   GPUS=N                   GPUs of a node, 8; processes with --device cpu
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 MODEL TASK [--dry-run]: TASK is math:FILE, math:FILE@1/2 or verl:FILE" >&2; exit 2; }
model=$1 task=$2
shift 2

if [ "${NODES:-1}" = 1 ]; then
  settings=(rollout.problems=8 rollout.max_tokens=16384 rollout.max_input=16384 rollout.segment=8192 rollout.live=2496
    sampler_settings.max_model_len=32768 sampler_settings.gpu_memory_utilization=0.5)
  cluster=(nodes=1 "gpus=${GPUS:-8}" tensor_parallel=2)
else # a row has up to 98,304 tokens: 8 GPUs share it, 12,288 each, which needs flash-attn
  ray status
  settings=(sampler_settings.gpu_memory_utilization=0.6)
  cluster=(address="${RAY_ADDRESS:-auto}" "nodes=$NODES" "gpus=${GPUS:-8}" tensor_parallel=4
    actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=8
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=12288
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=12288)
fi

orgthink train marsrl-qwen3 --model "$model" --out "${RUNS:-runs}/marsrl-qwen3" --go-on \
  --set "rollout.task=$task" "${settings[@]}" ${SETTINGS:-} --backend verl --cluster "${cluster[@]}" ${CLUSTER:-} "$@"
