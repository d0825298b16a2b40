package main

import "math"

// ngram holds counts of symbols and of pairs of symbols.
type ngram struct {
	one   []float64   // [V]
	two   [][]float64 // [V][V], the first index is the earlier symbol
	from  []float64   // [V], pairs that begin with the symbol
	total float64
}

func countNgrams(text []int, alphabet int) *ngram {
	m := &ngram{one: make([]float64, alphabet), two: make([][]float64, alphabet), from: make([]float64, alphabet), total: float64(len(text))}
	for i := range m.two {
		m.two[i] = make([]float64, alphabet)
	}
	for i, s := range text {
		m.one[s]++
		if i > 0 {
			m.two[text[i-1]][s]++
			m.from[text[i-1]]++
		}
	}
	return m
}

// unigram is the probability of s, with one added to each count.
func (m *ngram) unigram(s int) float64 { return (m.one[s] + 1) / (m.total + float64(len(m.one))) }

// bigram is the probability of s after prev, smoothed with one pseudo-count
// spread as the unigram (Witten-Bell with a fixed weight).
func (m *ngram) bigram(prev, s int) float64 {
	return (m.two[prev][s] + m.unigram(s)) / (m.from[prev] + 1)
}

// losses are the mean cross entropies, in nats a symbol, of the two models on
// the targets of the given windows.
func (m *ngram) losses(windows [][]int) (unigram, bigram float64) {
	n := 0.0
	for _, w := range windows {
		for i, s := range w[1:] {
			unigram -= math.Log(m.unigram(s))
			bigram -= math.Log(m.bigram(w[i], s))
			n++
		}
	}
	return unigram / n, bigram / n
}

// bits turns nats into bits.
func bits(nats float64) float64 { return nats / math.Ln2 }
