package plan

import (
	"sync"
	"testing"
)

func TestRememberedSplitsAreThoseOfTheirShape(t *testing.T) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for tokens := int64(1); tokens < 5000; tokens += 333 {
				for _, lim := range []Limits{H200, A100} {
					for _, typ := range []Type{Float32, BFloat16} {
						s := mixShape{tokens, 4096, 24, typ, Float32, false}
						for range 2 {
							if got, want := s.forward(lim), s.searchForward(lim); got != want {
								t.Errorf("%+v on %+v: the forward's split is %+v, want %+v", s, lim, got, want)
							}
							if got, want := s.backward(lim), s.searchBackward(lim); got != want {
								t.Errorf("%+v on %+v: the backward's split is %+v, want %+v", s, lim, got, want)
							}
						}
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestAMemoIsBounded(t *testing.T) {
	var m memo[int64]
	searches := 0
	search := func(s mixShape, _ Limits) int64 { searches++; return 2 * s.n }
	for n := range int64(3*memoLength + 1) {
		for range 2 {
			if got := m.get(mixShape{n: n}, H200, search); got != 2*n {
				t.Fatalf("shape %d has %d, want %d", n, got, 2*n)
			}
		}
		if len(m.found) > memoLength {
			t.Fatalf("%d shapes are held, want at most %d", len(m.found), memoLength)
		}
	}
	if want := 3*memoLength + 1; searches != want {
		t.Errorf("%d searches, want %d: one a shape", searches, want)
	}
}
