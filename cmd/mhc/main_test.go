package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/golden"
)

const goldenDir = "../../tests/testdata/golden"

// execute runs a command line.
func execute(args ...string) (status int, out, err string) {
	var stdout, stderr bytes.Buffer
	status = run(context.Background(), args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"-help"}, {"verify", "-h"}, {"info", "-h"}} {
		status, out, stderr := execute(args...)
		assert.Equal(t, 0, status, args)
		assert.Contains(t, out, "Usage: mhc")
		assert.Empty(t, stderr)
	}
	_, out, _ := execute("verify", "-h")
	assert.Contains(t, out, "The exit status is 1 if an error is over its bound")
	assert.Contains(t, out, "--vm=\"both\"")
}

func TestArgumentsThatCannotBeUsed(t *testing.T) {
	for want, args := range map[string][]string{
		"expected one of":                       {},
		"unexpected argument frobnicate":        {"frobnicate"},
		`expected "<path> ..."`:                 {"verify"},
		`--vm must be one of "tape","lisp"`:     {"verify", "-vm", "both2", goldenDir},
		`device "tpu", want one of cpu, cuda`:   {"verify", "-device", "tpu", goldenDir},
		"nowhere: no such file":                 {"verify", "nowhere"},
		"no *.safetensors files in this folder": {"verify", "."},
	} {
		status, _, stderr := execute(args...)
		assert.Equal(t, 2, status, args)
		assert.Contains(t, stderr, want)
	}
}

func TestVerifyTable(t *testing.T) {
	status, out, stderr := execute("verify", "-vm", "tape", goldenDir+"/sinkhorn_hc4_tmax4.safetensors")
	assert.Equal(t, 0, status)
	assert.Equal(t, "1 files on cpu: 4 tensors pass, 0 fail\n", stderr)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5)
	assert.Equal(t, []string{"file", "vm", "dtype", "tensor", "error", "bound"}, strings.Fields(lines[0]))
	assert.Regexp(t, `^sinkhorn_hc4_tmax4 +tape +float32 +out +\d\.\d\de-\d\d +2\.00e-06 +pass$`, lines[1])
	assert.Regexp(t, `^sinkhorn_hc4_tmax4 +tape +float64 +grad_logits +\d\.\d\de-\d\d +1\.00e-12 +pass$`, lines[4])
}

func TestVerifyJSON(t *testing.T) {
	status, out, _ := execute("verify", "-json", "-stored", goldenDir+"/apply_f32_b2_t4_hc2_c32.safetensors", goldenDir+"/coeffs_f64_hc4_c8_tmax1.safetensors")
	assert.Equal(t, 0, status)
	tensors := map[string]int{}
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		var row golden.Row
		require.NoError(t, decoder.Decode(&row))
		assert.True(t, row.Pass)
		assert.LessOrEqual(t, float64(row.Error), float64(row.Bound))
		assert.Equal(t, "cpu", row.Device)
		tensors[row.Machine+" "+row.Dtype+" "+row.Tensor]++
	}
	assert.Len(t, tensors, 2*8+2*10)
	assert.Equal(t, 1, tensors["lisp float32 post_res_grad_h_res"])
	assert.Equal(t, 1, tensors["tape float64 grad_alpha_res"])
}

// A changed reference is over its bound; a file that cannot be read is told from
// it by the status, and does not hide the others.
func TestVerifyFindsFaults(t *testing.T) {
	good, err := os.ReadFile(goldenDir + "/sinkhorn_hc4_tmax4.safetensors")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}

	wrong := bytes.Clone(good)
	wrong[len(wrong)-1] ^= 0x80 // the sign of an element of upstream
	write("wrong.safetensors", wrong)
	status, out, stderr := execute("verify", dir)
	assert.Equal(t, 1, status)
	assert.Regexp(t, `wrong +lisp +float32 +grad_logits .* FAIL`, out)
	assert.Regexp(t, `wrong +lisp +float32 +out .* pass`, out)
	assert.Equal(t, "1 files on cpu: 4 tensors pass, 4 fail\n", stderr)

	write("cut.safetensors", good[:len(good)-8])
	write("empty.safetensors", nil)
	write("foreign.safetensors", []byte(strings.Repeat("no", 100)))
	status, out, stderr = execute("verify", dir)
	assert.Equal(t, 2, status)
	assert.Contains(t, out, "FAIL")
	assert.Contains(t, stderr, "3 of 4 files cannot be verified")
	for name, want := range map[string]string{
		"cut": "truncated in tensor upstream", "empty": "no safetensors file: 0 bytes", "foreign": "no safetensors file: a header of",
	} {
		assert.Contains(t, stderr, filepath.Join(dir, name+".safetensors")+": "+want)
	}

	header := []byte(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`)
	write("other.safetensors", append(append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...), 0, 0, 0, 0))
	status, _, stderr = execute("verify", filepath.Join(dir, "other.safetensors"))
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, "no file of reference values: its tensors are x")
}

func TestInfo(t *testing.T) {
	status, out, stderr := execute("info")
	assert.Equal(t, 0, status)
	assert.Empty(t, stderr)
	assert.Regexp(t, `(?m)^go +go1\.`, out)
	assert.Regexp(t, `(?m)^kernels +(go|avx2|avx512) in use, (go|avx2|avx512) available`, out)
	assert.Regexp(t, `(?m)^device cpu +\S+`, out)
	assert.Regexp(t, `(?m)^device cuda +(\d: |none: cuda: )`, out)
}
