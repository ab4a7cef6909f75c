#!/usr/bin/env bash
# SeeUPO and GRPO for a few iterations on one GPU, with and without offloading; at most 8 minutes, no downloads.
# Needs the GPU profile (recipes/README.md) in the environment of PYTHON. Results: outputs/gpu-smoke/report.json.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-$(test -x .venv/bin/python && echo .venv/bin/python || command -v python3)}
command -v nvidia-smi >/dev/null || { echo "no nvidia-smi here: run this on a GPU node" >&2; exit 2; }
"$PYTHON" -c 'import vllm' 2>/dev/null || { echo "vllm is not installed: pip install -e '.[gpu]'" >&2; exit 2; }
exec timeout --signal=INT --kill-after=20 480 "$PYTHON" -m seeupo_recipe.cluster smoke
