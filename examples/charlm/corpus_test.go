package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCorpus(t *testing.T) {
	c, err := newCorpus("t", []byte("abcabcabcabcabcabcabcabcabcabc"), 2)
	require.NoError(t, err)
	assert.Equal(t, []byte("abc"), c.alphabet)
	assert.Len(t, c.train, 27)
	assert.Equal(t, []int{0, 1, 2}, c.valid)
	_, err = newCorpus("t", []byte("abc"), 2)
	assert.EqualError(t, err, "text t has 3 bytes, want at least 31 for a context of 2")
}

func TestReadText(t *testing.T) {
	name, text, err := readText("")
	require.NoError(t, err)
	assert.Contains(t, name, "Go standard library")
	assert.Greater(t, len(text), 1_000_000)
	again, _, err := readText("")
	require.NoError(t, err)
	assert.Equal(t, name, again)

	file := filepath.Join(t.TempDir(), "some.txt")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	name, text, err = readText(file)
	require.NoError(t, err)
	assert.Equal(t, "some.txt", name)
	assert.Equal(t, "text", string(text))
	_, _, err = readText(file + "x")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestWindows(t *testing.T) {
	text := make([]int, 100)
	for i := range text {
		text[i] = i
	}
	a, b := windows(text, 5, 8, 1, 7), windows(text, 5, 8, 1, 7)
	assert.Equal(t, a, b, "a function of seed and step")
	assert.NotEqual(t, a, windows(text, 5, 8, 1, 8))
	assert.NotEqual(t, a, windows(text, 5, 8, 2, 7))
	for _, w := range a {
		require.Len(t, w, 9)
		for i := range w {
			assert.Equal(t, w[0]+i, w[i])
		}
	}
}

func TestNgrams(t *testing.T) {
	m := countNgrams([]int{0, 1, 0, 1, 0, 2}, 3)
	// counts 3, 2, 1 of 6, one added to each of 3
	assert.InDelta(t, 4.0/9, m.unigram(0), 1e-15)
	assert.InDelta(t, 3.0/9, m.unigram(1), 1e-15)
	// after 0: 1 twice, 2 once; plus one pseudo-count spread as the unigram
	assert.InDelta(t, (2+3.0/9)/4, m.bigram(0, 1), 1e-15)
	for prev := range 3 {
		sum := 0.0
		for s := range 3 {
			sum += m.bigram(prev, s)
		}
		assert.InDelta(t, 1, sum, 1e-12)
	}
	uni, bi := m.losses([][]int{{0, 1, 0}})
	assert.InDelta(t, -(math.Log(3.0/9)+math.Log(4.0/9))/2, uni, 1e-12)
	assert.InDelta(t, -(math.Log(m.bigram(0, 1))+math.Log(m.bigram(1, 0)))/2, bi, 1e-12)
}
