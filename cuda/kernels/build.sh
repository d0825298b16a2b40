#!/bin/sh
# Builds mhc.fatbin from the sources in this folder. The committed file comes from nvcc 11.8 (NVCC names another compiler):
# the same compiler gives the same bytes, so `build.sh -check` tells whether the committed file is that of the sources.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$nvcc" -std=c++17 -O3 --threads 0 -fatbin -Xfatbin -compress-all \
	-gencode arch=compute_80,code=sm_80 \
	-gencode arch=compute_90,code=sm_90 \
	-gencode arch=compute_90,code=compute_90 \
	-o "$tmp/mhc.fatbin" mhc.cu
if [ "${1:-}" = -check ]; then
	cmp -s "$tmp/mhc.fatbin" mhc.fatbin || {
		echo "mhc.fatbin is not what these sources give: run cuda/kernels/build.sh with nvcc 11.8" >&2
		exit 1
	}
else
	mv "$tmp/mhc.fatbin" mhc.fatbin
	chmod 644 mhc.fatbin
fi
