#!/usr/bin/env bash
# Installs NVRTC, ptxas and the CUDA headers for this user, from Python wheels: what compiling kernels needs, with or
# without a GPU. Does nothing when they are there already. About 560 MB in the user's cache folder.
set -euo pipefail

home="${XDG_CACHE_HOME:-$HOME/.cache}/kernelgate/cuda-13.0"
if [ -f "$home/complete" ]; then
    echo "CUDA 13.0 compilers: $home"
    exit 0
fi
mkdir -p "$home"
python3 -m pip install --quiet --disable-pip-version-check --upgrade --target "$home" \
    nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 \
    nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
test -f "$home/nvidia/cu13/lib/libnvrtc.so.13"
test -f "$home/nvidia/cu13/include/cuda_fp16.h"
touch "$home/complete"
echo "CUDA 13.0 compilers: $home"
