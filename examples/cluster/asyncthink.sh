#!/usr/bin/env bash
# AsyncThink, Qwen3-4B, one node of 8 H100 or H200: the cold start, then reinforcement learning. See docs/your_gpus.md.
# The same command again goes on where it stopped. Other options go to both trainings: --dry-run checks them and trains
# nothing. This script has not been run on GPUs.
#   SETTINGS="NAME=VALUE …"  more settings of reinforcement learning
#   CLUSTER="NAME=VALUE …"   more settings of its cluster, and of verl
#   RUNS=FOLDER              the run folders lie there, in place of runs
#   GPUS=N                   GPUs of the node, 8; processes with --device cpu
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 MODEL PAIRS TASK [--dry-run]: TASK is countdown, math:FILE, math:FILE@1/2 or verl:FILE" >&2; exit 2; }
model=$1 pairs=$2 task=$3
shift 3
recipe=asyncthink-qwen3-math
[ "$task" != countdown ] || recipe=asyncthink-qwen3-countdown
run=${RUNS:-runs}/$recipe

sft=(train $recipe-sft --model "$model" --pairs "$pairs" --out "$run-sft" --go-on
  --set gradient_checkpointing=true pack_tokens=12288 save_every=100 "$@")
orgthink "${sft[@]}" --dry-run > /dev/null # an error is one line here; torchrun prints it once a process
torchrun --nproc-per-node "${GPUS:-8}" -m orgthink "${sft[@]}"
case " $* " in *" --dry-run "*) ;; *) model=$(ls -d "$run"-sft/checkpoints/step-*/model | tail -n 1) ;; esac

orgthink train $recipe --model "$model" --out "$run" --go-on \
  --set "rollout.task=$task" sampler_settings.gpu_memory_utilization=0.6 ${SETTINGS:-} \
  --backend verl --cluster nodes=1 "gpus=${GPUS:-8}" tensor_parallel=1 ${CLUSTER:-} "$@"
