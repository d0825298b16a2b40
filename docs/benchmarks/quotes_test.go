// Package benchmarks_test checks that what the documents quote is what the
// records say. After new records,
//
//	go test ./docs/benchmarks -update
//
// writes the quotations again.
package benchmarks_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/bench"
)

var update = flag.Bool("update", false, "write the quotations into the documents")

// quotations are the parts of the documents that the records dictate, by their
// names. In a document each stands between <!-- NAME: ... --> and <!-- end -->.
var quotations = map[string]func(t *testing.T) string{
	"against the fused kernels": againstFused,
	"gpu":                       gpu,
	"gpu apply":                 gpuApply,
	"cpu":                       cpu,
	"cpu yardsticks":            yardsticks,
	"cpu yardsticks in full":    yardsticksInFull,
}

var quotation = regexp.MustCompile(`(?s)(<!-- ([a-z ]+): [^\n]*-->\n)(.*?)(<!-- end -->)`)

func TestTheDocumentsQuoteTheRecords(t *testing.T) {
	quoted := map[string]int{}
	for _, file := range []string{"README.md", "../../README.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		want := quotation.ReplaceAllFunc(text, func(part []byte) []byte {
			m := quotation.FindSubmatch(part)
			name := string(m[2])
			require.Contains(t, quotations, name, file)
			quoted[name]++
			return bytes.Join([][]byte{m[1], []byte(quotations[name](t)), m[4]}, nil)
		})
		if *update {
			require.NoError(t, os.WriteFile(file, want, 0o644))
			continue
		}
		assert.Equal(t, string(want), string(text), "%s: go test ./docs/benchmarks -update writes it again", file)
	}
	for name := range quotations {
		assert.Equal(t, 1, quoted[name], "%s is quoted once", name)
	}
}

// Every record names a commit that is all that was built.
func TestRecordsNameTheirCommit(t *testing.T) {
	files, err := filepath.Glob("*/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if filepath.Base(file) == "compare.jsonl" {
			continue // its lines are of two commits
		}
		env, rows := read(t, file)
		assert.Len(t, env.Commit, 40, file)
		assert.False(t, env.Modified, file)
		assert.NotEmpty(t, rows, file)
		by := rows[0].KernelsBy
		for _, r := range rows {
			assert.Equal(t, by, r.KernelsBy, "%s: one method in a file", file)
		}
	}
}

// read is a record of mhc bench.
func read(t *testing.T, file string) (env bench.Environment, rows []bench.Result) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	lines := json.NewDecoder(f)
	require.NoError(t, lines.Decode(&env), file)
	return env, values[bench.Result](t, lines, file)
}

// values are the JSON values that are left.
func values[T any](t *testing.T, lines *json.Decoder, file string) (all []T) {
	t.Helper()
	for {
		var v T
		err := lines.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, file)
		all = append(all, v)
	}
}

// row is the one measurement of an operator's pass by someone, of the given size.
func row(t *testing.T, rows []bench.Result, operator, pass, by, dtype string, tokens, channels int) bench.Result {
	t.Helper()
	var found []bench.Result
	for _, r := range rows {
		if r.Operator == operator && r.Pass == pass && r.By == by && r.Dtype == dtype && r.N == tokens && r.Channels == channels && r.Streams == 4 && r.T == 20 {
			found = append(found, r)
		}
	}
	require.Len(t, found, 1, "%s %s by %s, %s, N = %d, C = %d", operator, pass, by, dtype, tokens, channels)
	return found[0]
}

// fusedRow is a line of fused.jsonl: the published kernels with a fused epilogue.
type fusedRow struct {
	Dtype    string  `json:"dtype"`
	Tokens   int     `json:"N"`
	Channels int     `json:"C"`
	Streams  int     `json:"n"`
	T        int     `json:"T"`
	Backward float64 `json:"backward_us"`
	Full     float64 `json:"full_us"`
}

func fused(t *testing.T) []fusedRow {
	f, err := os.Open("fused.jsonl")
	require.NoError(t, err)
	defer f.Close()
	return values[fusedRow](t, json.NewDecoder(f), f.Name())
}

// coeffs are the measurements of the coefficients in 16 bits.
func coeffs(t *testing.T) []bench.Result {
	_, rows := read(t, "h200/coeffs.jsonl")
	_, others := read(t, "h200/coeffs-dtypes.jsonl")
	all := append(rows, others...)
	for _, r := range all {
		require.Equal(t, rows[0].KernelsBy, r.KernelsBy, "one method in both files")
	}
	return all
}

func againstFused(t *testing.T) string {
	var b strings.Builder
	rows := coeffs(t)
	fmt.Fprintf(&b, "Ours is measured by %s.\n\n", cmp.Or(rows[0].KernelsBy, "events"))
	b.WriteString("| dtype | N, C | backward, fused | ours | ratio | forward and backward, fused | ours | ratio |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range fused(t) {
		backward := row(t, rows, "coeffs", "backward", "mhc", f.Dtype, f.Tokens, f.Channels).Kernels
		full := row(t, rows, "coeffs", "full", "mhc", f.Dtype, f.Tokens, f.Channels).Kernels
		fmt.Fprintf(&b, "| %s | %d, %d | %.0f | %s | %s | %.0f | %s | %s |\n", f.Dtype, f.Tokens, f.Channels,
			f.Backward, digits(backward), digits(f.Backward/backward), f.Full, digits(full), digits(f.Full/full))
	}
	return b.String()
}

func gpu(t *testing.T) string {
	var b strings.Builder
	rows := coeffs(t)
	b.WriteString("| tokens N, channels C | backward | over its floor | kernels | fused | forward and backward | kernels | fused |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range fused(t) {
		if f.Dtype != "bfloat16" {
			continue
		}
		backward := row(t, rows, "coeffs", "backward", "mhc", f.Dtype, f.Tokens, f.Channels)
		full := row(t, rows, "coeffs", "full", "mhc", f.Dtype, f.Tokens, f.Channels)
		fmt.Fprintf(&b, "| %d, %d | %s us | %s | %s us | %.0f us | %s us | %s us | %.0f us |\n", f.Tokens, f.Channels,
			digits(backward.P50), digits(backward.OverFloor()), digits(backward.Kernels), f.Backward, digits(full.P50), digits(full.Kernels), f.Full)
	}
	return b.String()
}

func gpuApply(t *testing.T) string {
	_, rows := read(t, "h200/apply.jsonl")
	var b strings.Builder
	b.WriteString("| N = 8192, C = 4096 | forward | over its floor | backward | over its floor |\n|---|---|---|---|---|\n")
	for _, o := range [][2]string{{"Pre", "pre"}, {"PostRes", "postres"}} {
		fmt.Fprintf(&b, "| %s |", o[0])
		for _, pass := range []string{"forward", "backward"} {
			r := row(t, rows, o[1], pass, "mhc", "bfloat16", 8192, 4096)
			fmt.Fprintf(&b, " %s us | %s |", digits(r.P50), digits(r.OverFloor()))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func cpu(t *testing.T) string {
	_, rows := read(t, "epyc/peer.jsonl")
	var b strings.Builder
	b.WriteString("| | this module | built-in operators | ratio | peak memory | theirs |\n|---|---|---|---|---|---|\n")
	for _, o := range [][2]string{
		{"coefficients", "coeffs"}, {"Sinkhorn alone", "sinkhorn"}, {"Pre", "pre"}, {"PostRes", "postres"}, {"a whole layer around the identity", "layer"},
	} {
		ours := row(t, rows, o[1], "full", "mhc", "float32", 512, 256)
		theirs := row(t, rows, o[1], "full", "gorgonia", "float32", 512, 256)
		mib := func(r bench.Result) string { return digits(float64(r.Peak) / (1 << 20)) }
		fmt.Fprintf(&b, "| %s | %s ms | %s ms | %s | %s MiB | %s MiB |\n", o[0],
			digits(ours.P50/1000), digits(theirs.P50/1000), digits(ours.Ratio), mib(ours), mib(theirs))
	}
	return b.String()
}

// digits shows a number with three digits, or all before the point.
func digits(v float64) string {
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(v)))), 64)
}
