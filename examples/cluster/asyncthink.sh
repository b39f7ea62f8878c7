#!/usr/bin/env bash
# AsyncThink, Qwen3-4B, one node of 8 H100 or H200: the cold start, then reinforcement learning. See docs/your_gpus.md.
# Other options go to both trainings: --dry-run checks them and trains nothing. SETTINGS="NAME=VALUE …" are more settings of
# reinforcement learning. This script has not been run on GPUs.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 MODEL PAIRS TASK [--dry-run]: TASK is countdown, math:FILE, math:FILE@1/2 or verl:FILE" >&2; exit 2; }
model=$1 pairs=$2 task=$3
shift 3
recipe=asyncthink-qwen3-math
[ "$task" != countdown ] || recipe=asyncthink-qwen3-countdown

torchrun --nproc-per-node 8 -m orgthink train $recipe-sft --model "$model" --pairs "$pairs" --out runs/$recipe-sft \
  --set gradient_checkpointing=true pack_tokens=12288 "$@"
case " $* " in *" --dry-run "*) ;; *) model=$(ls -d runs/$recipe-sft/checkpoints/step-*/model | tail -n 1) ;; esac

orgthink train $recipe --model "$model" --out runs/$recipe \
  --set "rollout.task=$task" sampler_settings.gpu_memory_utilization=0.6 ${SETTINGS:-} \
  --backend verl --cluster nodes=1 gpus=8 tensor_parallel=1 "$@"
