#!/usr/bin/env bash
# ParaManager, Qwen3-4B-Instruct-2507, one node of 8 H200: the cold start on all, then reinforcement learning: 4 train the
# manager, 3 serve the frozen pool. EPISODES is a run folder of managers' trajectories. A retriever must answer, see RETRIEVER.
# The same command again goes on where it stopped. See docs/your_gpus.md. Other options go to both trainings: --dry-run checks
# them, and serves and trains nothing. This script has not been run on GPUs.
#   RETRIEVER=URL            Search-R1's retriever, http://localhost:8000; or a folder of texts
#   SANDBOX=URL              a SandboxFusion server for programs, in place of bubblewrap
#   SERVED=1                 the pool answers already, on ports 8001 to 8003 or where SETTINGS say: none is started
#   SETTINGS="NAME=VALUE …"  more settings of reinforcement learning
#   CLUSTER="NAME=VALUE …"   more settings of its cluster, and of verl
#   RUNS=FOLDER              the run folders lie there, in place of runs
#   GPUS=N                   processes of a trial with --device cpu, half of them in reinforcement learning
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 MODEL EPISODES TASK [--dry-run]: TASK is math:FILE, math:FILE@1/2 or verl:FILE" >&2; exit 2; }
model=$1 episodes=$2 task=$3
shift 3
run=${RUNS:-runs}/paramanager-qwen3 gpus=${GPUS:-8} retriever=${RETRIEVER:-http://localhost:8000}
case " $* " in *" --dry-run "*) real= ;; *) real=1 ;; esac

if [ -n "$real" ] && [[ $retriever = http* ]]; then
  curl --silent --output /dev/null "$retriever" || { echo "no retriever answers at $retriever: start it, or set RETRIEVER" >&2; exit 2; }
fi
if [ -z "${SANDBOX:-}" ]; then
  bwrap --ro-bind / / true || { echo "programs need bubblewrap, which does not work here: set SANDBOX to a SandboxFusion server" >&2; exit 2; }
fi

sft=(train paramanager-qwen3-sft --model "$model" --episodes "$episodes" --out "$run-sft" --go-on
  --set gradient_checkpointing=true save_every=100 "$@")
orgthink "${sft[@]}" --dry-run > /dev/null # an error is one line here; torchrun prints it once a process
torchrun --nproc-per-node "$gpus" -m orgthink "${sft[@]}"
[ -z "$real" ] || model=$(ls -d "$run"-sft/checkpoints/step-*/model | tail -n 1)

serve() { CUDA_VISIBLE_DEVICES=$1 vllm serve "$2" --port "$3" --max-model-len 65536 --generation-config vllm & }  # without its top-k
if [ -n "$real" ] && [ -z "${SERVED:-}" ]; then
  trap 'kill $(jobs -p)' EXIT
  serve 4 openai/gpt-oss-20b 8001
  serve 5 Qwen/Qwen3-30B-A3B-Instruct-2507 8002
  serve 6 Qwen/Qwen3-Coder-30B-A3B-Instruct 8003
  for port in 8001 8002 8003; do
    until curl --silent --fail "http://localhost:$port/health"; do
      [ "$(jobs -rp | wc -l)" = 3 ] || { echo "a server of the pool has ended, as it says above" >&2; exit 1; }
      sleep 5
    done
  done
fi

CUDA_VISIBLE_DEVICES=0,1,2,3 orgthink train paramanager-qwen3 --model "$model" --out "$run" --go-on \
  --set "rollout.task=$task" sampler_settings.gpu_memory_utilization=0.5 \
  rollout.organization.settings.suite.corpus="$retriever" \
  rollout.organization.settings.suite.sandbox="${SANDBOX:-bubblewrap}" ${SETTINGS:-} \
  --backend verl --cluster nodes=1 "gpus=$((gpus / 2))" tensor_parallel=1 ${CLUSTER:-} "$@"
