#!/bin/sh
# Installs Debian's CUDA 11.8 (nvcc, cuda.h, and a libcuda to link with) unless it is there. It is in the components contrib
# and non-free: they are added to a copy of the machine's own source entries, which apt uses for this call alone.
set -eu
if command -v nvcc >/dev/null && [ -e /usr/include/cuda.h ] && ldconfig -p | grep -q 'libcuda\.so '; then
	exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/parts" "$tmp/lists/partial"
for f in /etc/apt/sources.list /etc/apt/sources.list.d/debian.list /etc/apt/sources.list.d/debian.sources; do
	[ -e "$f" ] || continue
	sed -E -e 's/^(Components:).*/\1 main contrib non-free/' -e '/^deb /s/ main.*/ main contrib non-free/' "$f" >"$tmp/parts/${f##*/}"
done
[ -e "$tmp/parts/sources.list" ] && mv "$tmp/parts/sources.list" "$tmp/parts/main.list"
if [ -z "$(ls "$tmp/parts")" ]; then
	echo "cuda/scripts/toolkit.sh: no Debian source entry on this machine: install CUDA 11.8 by hand" >&2
	exit 1
fi
apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$tmp/parts" \
		-o Dir::State::Lists="$tmp/lists" "$@"
}
apt update
apt install -y --no-install-recommends nvidia-cuda-toolkit nvidia-cuda-dev libcuda1
