# Everything a developer or a user runs. `make help` lists it.

GO ?= go
OUT ?= out/charlm
FUZZTIME ?= 2000x
CPU = ./internal/kernel/... ./internal/tier/... ./internal/parallel ./internal/scratch/... ./dtype ./rmsnorm ./sinkhorn ./streams ./coeffs ./op
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.7.0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## train a small language model for two minutes; results in out/charlm
	$(GO) run ./examples/charlm -out $(OUT) $(ARGS)

.PHONY: test
test: ## run every test, and a program that imports the module from outside
	$(GO) test -timeout 9m ./...

.PHONY: race
race: ## run every test under the race detector
	$(GO) test -race -short -timeout 30m ./...

.PHONY: tiers
tiers: ## run the tests of the CPU path with each tier of vector kernels demanded
	@for tier in go avx2 avx512; do echo "MHC_CPU=$$tier"; MHC_CPU=$$tier $(GO) test -timeout 9m $(CPU) || exit 1; done

.PHONY: purego
purego: ## vet a build without assembly, and run the tests of its CPU path
	$(GO) vet -tags purego ./...
	$(GO) test -tags purego -timeout 9m $(CPU)

.PHONY: fuzz
fuzz: ## fuzz the operators on slices under the address sanitizer, FUZZTIME a target; needs a C compiler
	@for tier in go avx512; do \
		for target in rmsnorm/FuzzSizes sinkhorn/FuzzSinkhorn coeffs/FuzzCoeffs streams/FuzzArguments; do \
			echo "MHC_CPU=$$tier $$target"; \
			MHC_CPU=$$tier CGO_ENABLED=1 $(GO) test -asan -run '^$$' -fuzz "^$${target#*/}\$$" -fuzztime $(FUZZTIME) "./$${target%/*}" || exit 1; \
		done; \
	done

.PHONY: lint
lint: asm-check ## gofmt, go vet, staticcheck, stale assembly
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...

.PHONY: cover
cover: ## statement coverage by package, of the tests of all packages
	$(GO) test -timeout 9m -coverprofile=coverage.out ./...

.PHONY: bench
bench: ## time the operators beside the same built from Gorgonia's own
	$(GO) run ./cmd/mhc bench -peer gorgonia

.PHONY: yardsticks
yardsticks: ## time the CPU path beside what bounds it
	$(GO) run ./cmd/mhc bench -yardsticks -N 2048 -C 1024

.PHONY: asm
asm: ## write the assembly again from its generators in _asm
	$(GO) generate ./...

.PHONY: asm-check
asm-check: ## fail where the committed assembly is not what its generator writes
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	files=$$(git ls-files '*_amd64.s' '*stubs_amd64.go') && cp --parents $$files "$$tmp" && \
	$(GO) generate ./... && \
	for f in $$files; do cmp "$$tmp/$$f" "$$f" || { echo "stale assembly: commit what make asm has written"; exit 1; }; done

.PHONY: kernels
kernels: ## build the fatbin of the CUDA kernels again (installs Debian's nvcc 11.8 if it is missing)
	cuda/scripts/toolkit.sh
	cuda/kernels/build.sh

.PHONY: cuda-check
cuda-check: ## fail where the fatbin is stale; build, vet and test package cuda under both bindings
	cuda/scripts/check.sh

.PHONY: gpu-bundle
gpu-bundle: ## put all that a GPU machine without Go needs into gpu-bundle/
	cuda/scripts/bundle.sh
