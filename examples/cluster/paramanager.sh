#!/usr/bin/env bash
# ParaManager, Qwen3-4B-Instruct-2507, one node of 8 H200: the cold start on all, then reinforcement learning: 4 train the
# manager, 3 serve the frozen pool. EPISODES is a run folder of managers' trajectories. Search-R1's retriever answers on port
# 8000, or where RETRIEVER says. Programs run in bubblewrap, or at the SandboxFusion server SANDBOX. See docs/your_gpus.md.
# Other options go to both trainings: --dry-run checks them and serves and trains nothing. SETTINGS="NAME=VALUE …" are more
# settings of reinforcement learning. This script has not been run on GPUs.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 MODEL EPISODES TASK [--dry-run]: TASK is math:FILE, math:FILE@1/2 or verl:FILE" >&2; exit 2; }
model=$1 episodes=$2 task=$3
shift 3
cold=runs/paramanager-qwen3-sft

torchrun --nproc-per-node 8 -m orgthink train paramanager-qwen3-sft --model "$model" --episodes "$episodes" --out $cold \
  --set gradient_checkpointing=true "$@"

serve() { CUDA_VISIBLE_DEVICES=$1 vllm serve "$2" --port "$3" --max-model-len 65536 --generation-config vllm & }  # without its top-k
case " $* " in *" --dry-run "*) ;; *)
  model=$(ls -d $cold/checkpoints/step-*/model | tail -n 1)
  trap 'kill $(jobs -p)' EXIT
  serve 4 openai/gpt-oss-20b 8001
  serve 5 Qwen/Qwen3-30B-A3B-Instruct-2507 8002
  serve 6 Qwen/Qwen3-Coder-30B-A3B-Instruct 8003
  for port in 8001 8002 8003; do
    until curl --silent --fail "http://localhost:$port/health"; do
      [ "$(jobs -rp | wc -l)" = 3 ] || { echo "a server of the pool has ended, as it says above" >&2; exit 1; }
      sleep 5
    done
  done ;;
esac

CUDA_VISIBLE_DEVICES=0,1,2,3 orgthink train paramanager-qwen3 --model "$model" --out runs/paramanager-qwen3 \
  --set "rollout.task=$task" sampler_settings.gpu_memory_utilization=0.5 \
  rollout.organization.settings.suite.corpus="${RETRIEVER:-http://localhost:8000}" \
  rollout.organization.settings.suite.sandbox="${SANDBOX:-bubblewrap}" ${SETTINGS:-} \
  --backend verl --cluster nodes=1 gpus=4 tensor_parallel=1 "$@"
