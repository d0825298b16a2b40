#!/bin/sh
# Runs the bundle's tests and bench on a machine with a GPU, and collects what they print.
#
#	run.sh RESULTS [STEP...]
#
# Steps, by default all, in this order: info, purego, cu (the tests under either binding), tools (those of the bench and of CUPTI),
# verify (golden values), charlm, bench, planted (compute-sanitizer finds a kernel's illegal write), memcheck, initcheck,
# racecheck (it finds nothing in a reduced run of the tests), ptx (the same run with what the driver compiles from PTX, as on a
# GPU that is newer than the machine code). Each writes RESULTS/STEP.log and a line to RESULTS/summary.txt; the exit status is that of the worst.
set -u
cd "$(dirname "$0")"
results=$1
shift
[ $# -gt 0 ] || set -- info purego cu tools verify charlm bench planted memcheck initcheck racecheck ptx
mkdir -p "$results"
for f in *.gz; do
	[ -e "${f%.gz}" ] || gunzip -k "$f"
done
export MHC_REQUIRE_GPU=1
worst=0

step() {
	name=$1
	shift
	start=$(date +%s)
	"$@" >"$results/$name.log" 2>&1
	status=$?
	[ $status -gt $worst ] && worst=$status
	passed=$(grep -c -- '--- PASS' "$results/$name.log")
	failed=$(grep -c -- '--- FAIL' "$results/$name.log")
	echo "$name: status $status, $passed passed, $failed failed, $(($(date +%s) - start)) s" | tee -a "$results/summary.txt"
	[ $status -eq 0 ] || tail -n "${TAIL:-40}" "$results/$name.log"
}

sanitize() {
	tool=$1
	shift
	timeout "${SANITIZER_SECONDS:-300}" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$@" \
		./cuda-purego.test -test.short -test.v -test.run "${SANITIZER_TESTS:-TestConformanceOfTheGPU}"
}

# bench measures the primary matrix, its controls, the application of the coefficients, and the whole layer.
bench() {
	run="./mhc bench -device cuda -rounds 7 -dtype bfloat16"
	$run coeffs -C 1024,2048,4096,8192 -N 512,2048,8192 -o "$results/coeffs.jsonl" &&
		$run coeffs -C 2048 -N 2048 -n 2,8 -o "$results/coeffs-streams.jsonl" &&
		$run coeffs -C 1024,4096 -N 2048 -tmax 8 -o "$results/coeffs-tmax8.jsonl" &&
		./mhc bench -device cuda -rounds 7 coeffs -C 2048 -N 2048 -dtype float16,float32 -o "$results/coeffs-dtypes.jsonl" &&
		$run pre postres -C 1280,2560,4096,7168 -N 8192 -o "$results/apply.jsonl" &&
		$run pre postres -C 4096 -N 512 -o "$results/apply-few.jsonl" &&
		$run layer head -C 1024,4096 -N 512,8192 -o "$results/layer.jsonl"
}

# charlm trains the same model on the CPU and on the GPU: the losses of every step agree to 1 in 1000.
charlm() {
	rm -rf cpu gpu
	./charlm -text text.txt -steps 40 -layers 1 -sample 0 -seed 3 -out cpu -device cpu &&
		./charlm -text text.txt -steps 40 -layers 1 -sample 0 -seed 3 -out gpu -device cuda || return 1
	losses() { sed 's/.*"loss":\([0-9.]*\).*/\1/' "$1/metrics.jsonl"; }
	losses cpu >cpu.txt
	losses gpu >gpu.txt
	paste cpu.txt gpu.txt | awk '
		{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > worst) worst = d; if (d > 1e-3 * $1) bad++ }
		END { print NR " steps, largest difference of the losses " worst; exit bad > 0 || NR != 40 }'
}

tools() {
	./cupti.test -test.v && ./bench.test -test.v -test.short
}

planted() {
	out=$(MHC_TEST_LOSE_DEVICE=1 MHC_CUDA_DEBUG=1 timeout 60 compute-sanitizer --tool memcheck --print-limit 3 \
		./cuda-purego.test -test.v -test.run '^TestALostDevice$' 2>&1)
	printf '%s\n' "$out"
	case $out in *'Invalid __global__'*) ;; *) return 1 ;; esac
}

for s in "$@"; do
	case $s in
	info) step info ./mhc info ;;
	purego) step purego ./cuda-purego.test -test.v -test.timeout 300s ;;
	cu) step cu ./cuda-cu.test -test.v -test.timeout 300s ;;
	tools) step tools tools ;;
	verify) step verify ./mhc verify -device cuda golden ;;
	charlm) step charlm charlm ;;
	bench) step bench bench ;;
	planted) step planted planted ;;
	memcheck) step memcheck sanitize memcheck --leak-check no ;;
	initcheck) step initcheck sanitize initcheck ;;
	racecheck) step racecheck sanitize racecheck ;;
	ptx) step ptx env CUDA_FORCE_PTX_JIT=1 ./cuda-purego.test -test.short -test.v -test.timeout 300s -test.run TestConformanceOfTheGPU ;;
	*)
		echo "run.sh: step $s, want info, purego, cu, tools, verify, charlm, bench, planted, memcheck, initcheck, racecheck or ptx" >&2
		exit 2
		;;
	esac
done
exit $worst
