#!/bin/sh
# Checks all that can be checked of the CUDA code without a GPU: that the committed fatbin is what nvcc 11.8 makes of the
# sources, that every package and test binary builds and vets under both bindings, and that package cuda and its tests compile on
# other platforms. GPU tests skip where there is no GPU.
set -eu
cd "$(dirname "$0")/../.."
cuda/scripts/toolkit.sh
cuda/kernels/build.sh -check
for build in "CGO_ENABLED=0" "CGO_ENABLED=1" "CGO_ENABLED=1 GOFLAGS=-tags=mhccuda"; do
	echo "go build, go vet: $build"
	env $build go build ./...
	env $build go vet ./... # compiles the test binaries' packages too
done
for platform in linux/arm64 windows/amd64 darwin/arm64 android/arm64; do
	echo "go vet ./cuda/...: $platform"
	CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go vet ./cuda/...
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
CGO_ENABLED=1 go test -c -tags mhccuda -o "$tmp/" ./cuda ./cuda/driver
CGO_ENABLED=0 go test ./cuda/...
