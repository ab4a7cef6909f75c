#!/usr/bin/env bash
# Resolve the GPU profile for Python 3.10 to 3.12 on Linux from the package index, installing none of it (a minute),
# and write the versions for Python 3.12 to constraints-gpu.txt. PYTHON makes the environment that uv runs from.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
for version in 3.10 3.11 3.12; do
    "$work/venv/bin/uv" pip compile pyproject.toml --quiet --extra gpu --python-version "$version" \
        --python-platform x86_64-manylinux_2_28 --no-annotate --no-header --no-emit-index-url \
        --output-file "$work/$version.txt"
    echo "Python $version: $(wc -l <"$work/$version.txt") packages," \
        "$(grep -E '^(verl|torch|vllm|flash-attn|transformers|ray)==' "$work/$version.txt" | tr '\n' ' ')"
done
{
    echo "# Exact versions of the GPU profile for Python 3.12 on Linux, for \`pip install -c\` (scripts/resolve_gpu.sh)."
    cat "$work/3.12.txt"
} >constraints-gpu.txt
