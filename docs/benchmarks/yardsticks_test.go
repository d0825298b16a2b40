package benchmarks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/bench"
)

// comparisons are those of mhc bench -yardsticks.
func comparisons(t *testing.T) []bench.Comparison {
	t.Helper()
	const file = "epyc/yardsticks.jsonl"
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	lines := json.NewDecoder(f)
	require.NoError(t, lines.Decode(&bench.Environment{}), file)
	return values[bench.Comparison](t, lines, file)
}

// comparison is the one of something by someone against a yardstick.
func comparison(t *testing.T, rows []bench.Comparison, what, by, against string, cold bool) bench.Comparison {
	t.Helper()
	i := slices.IndexFunc(rows, func(r bench.Comparison) bool {
		return r.What == what && r.By == by && r.Against == against && r.Cold == cold
	})
	require.GreaterOrEqual(t, i, 0, "%s by %s against %s", what, by, against)
	return rows[i]
}

// yardsticks is the short table.
func yardsticks(t *testing.T) string {
	rows := comparisons(t)
	var b strings.Builder
	b.WriteString("| | against | cold caches | warm |\n|---|---|---|---|\n")
	for _, o := range [][3]string{
		{"coefficients forward", "slices", "reading x"}, {"coefficients forward", "slices", "its multiplications alone"},
		{"coefficients backward", "slices", "copying x to dx"}, {"coefficients backward", "slices", "its multiplications alone"},
		{"PostRes forward", "slices", "moving its bytes"},
	} {
		cold, warm := comparison(t, rows, o[0], o[1], o[2], true), comparison(t, rows, o[0], o[1], o[2], false)
		fmt.Fprintf(&b, "| %s | %s | %s times as long | %s |\n", o[0], o[2], digits(cold.P50), digits(warm.P50))
	}
	for _, o := range [][3]string{
		{"coefficients forward and backward", "graph", "Gorgonia's own operators"}, {"Sinkhorn forward and backward", "slices", "portable code"},
		{"coefficients forward and backward", "slices", "one worker"},
	} {
		r := comparison(t, rows, o[0], o[1], o[2], false)
		fmt.Fprintf(&b, "| %s%s | %s | | %s times as fast |\n", o[0], map[bool]string{true: ", in a graph"}[o[1] == "graph"], o[2], digits(r.P50))
	}
	tokens := slices.DeleteFunc(rows, func(r bench.Comparison) bool { return r.Against != "the best number of tokens" })
	require.NotEmpty(t, tokens)
	worst := slices.MaxFunc(tokens, func(a, b bench.Comparison) int { return int(1e6 * (a.P50 - b.P50)) })
	fmt.Fprintf(&b, "| a token of %d to %d, at most (at %d) | the best number of tokens | | %s times as long |\n",
		tokens[0].N, tokens[len(tokens)-1].N, worst.N, digits(worst.P50))
	return b.String()
}

// yardsticksInFull is everything.
func yardsticksInFull(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| | by | against | caches | N | time | yardstick | ratio | p20 to p80 |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range comparisons(t) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %s us | %s us | %s | %s to %s |\n", r.What, r.By, r.Against,
			map[bool]string{true: "cold", false: "warm"}[r.Cold], r.N, digits(r.Time), digits(r.Yardstick), digits(r.P50), digits(r.P20), digits(r.P80))
	}
	return b.String()
}
