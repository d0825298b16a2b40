#!/bin/sh
# Builds mhc.fatbin from the sources in this folder, and symbols.txt, the kernels in it with their numbers of arguments, against
# which the plans are tested. The committed files come from nvcc 11.8 (NVCC and CUOBJDUMP name others): the same compiler gives
# the same bytes, so `build.sh -check` tells whether the committed files are those of the sources.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}
cuobjdump=${CUOBJDUMP:-cuobjdump}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$nvcc" -std=c++17 -O3 --threads 0 -fatbin -Xfatbin -compress-all \
	-gencode arch=compute_80,code=sm_80 \
	-gencode arch=compute_90,code=sm_90 \
	-gencode arch=compute_90,code=compute_90 \
	-o "$tmp/mhc.fatbin" mhc.cu
# Every argument is an 8-byte slot: another type counts as a thousand.
"$cuobjdump" -ptx "$tmp/mhc.fatbin" | LC_ALL=C awk '
	/^\.visible \.entry mhc_/ { name = $3; sub(/\(.*/, "", name); n = 0; on = 1 }
	on && /\.param/ { n += /\.param \.[usbf]64 / ? 1 : 1000 }
	on && /^\)/ { print name, n; on = 0 }' | LC_ALL=C sort >"$tmp/symbols.txt"
for f in mhc.fatbin symbols.txt; do
	if [ "${1:-}" = -check ]; then
		cmp -s "$tmp/$f" "$f" || {
			echo "cuda/kernels/$f is not what these sources give: run cuda/kernels/build.sh with nvcc 11.8" >&2
			exit 1
		}
	else
		mv "$tmp/$f" "$f"
		chmod 644 "$f"
	fi
done
