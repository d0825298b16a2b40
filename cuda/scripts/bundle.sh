#!/bin/sh
# Builds gpu-bundle/: all that a GPU machine without Go needs. On that machine, gpu-bundle/run.sh does the rest.
set -eu
cd "$(dirname "$0")/../.."
cuda/scripts/toolkit.sh
rm -rf gpu-bundle
mkdir gpu-bundle
strip=-ldflags=-s\ -w
CGO_ENABLED=0 go test -c "$strip" -o gpu-bundle/cuda-purego.test ./cuda
CGO_ENABLED=1 go test -c "$strip" -tags mhccuda -o gpu-bundle/cuda-cu.test ./cuda
for p in bench cupti; do
	CGO_ENABLED=0 go test -c "$strip" -o gpu-bundle/$p.test ./internal/$p
done
CGO_ENABLED=0 go build "$strip" -o gpu-bundle/mhc ./cmd/mhc
CGO_ENABLED=0 go build "$strip" -o gpu-bundle/charlm ./examples/charlm
cat examples/charlm/*.go >gpu-bundle/text.txt # for charlm to learn
cp -r tests/testdata/golden gpu-bundle/golden
gzip -9 gpu-bundle/mhc gpu-bundle/charlm gpu-bundle/*.test # run.sh unpacks them
cp cuda/scripts/run.sh gpu-bundle/run.sh
du -sh gpu-bundle
