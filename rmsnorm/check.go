package rmsnorm

import (
	"fmt"
	"math"

	"github.com/mhc-go/mhc/dtype"
)

func checkForward[S, P dtype.Storage, A dtype.Float](mix, r []A, x []S, phi []P, d Dims, eps float64) error {
	if err := checkInputs(x, phi, r, d); err != nil {
		return err
	}
	if err := checkLen("mix", mix, "Tokens*M", d.Tokens, d.M); err != nil {
		return err
	}
	if !(eps >= 0) || math.IsInf(eps, 1) {
		return fmt.Errorf("rmsnorm: eps is %v, want a finite number, not negative", eps)
	}
	return nil
}

func checkBackward[S, P dtype.Storage, A dtype.Float](dx []S, dphi []P, x []S, phi []P, mix, r, dmix []A, d Dims) error {
	if err := checkInputs(x, phi, r, d); err != nil {
		return err
	}
	if err := checkLen("mix", mix, "Tokens*M", d.Tokens, d.M); err != nil {
		return err
	}
	if err := checkLen("dmix", dmix, "Tokens*M", d.Tokens, d.M); err != nil {
		return err
	}
	if dx != nil {
		if err := checkLen("dx", dx, "Tokens*K", d.Tokens, d.K); err != nil {
			return err
		}
	}
	if dphi != nil {
		return checkLen("dphi", dphi, "K*M", d.K, d.M)
	}
	return nil
}

func checkInputs[S, P dtype.Storage, A dtype.Float](x []S, phi []P, r []A, d Dims) error {
	_, double := any(x).([]float64)
	_, wide := any(r).([]float64)
	if double != wide || !same[P, S]() && !same[P, A]() {
		return fmt.Errorf("rmsnorm: x is %T, phi %T and r %T: want r float64 if x is, else float32, and phi like x or r", *new(S), *new(P), *new(A))
	}
	switch {
	case d.Tokens < 0:
		return fmt.Errorf("rmsnorm: Tokens is %d, want at least 0", d.Tokens)
	case d.K < 1:
		return fmt.Errorf("rmsnorm: K is %d, want at least 1", d.K)
	case d.M < 1:
		return fmt.Errorf("rmsnorm: M is %d, want at least 1", d.M)
	}
	if err := checkLen("x", x, "Tokens*K", d.Tokens, d.K); err != nil {
		return err
	}
	if err := checkLen("phi", phi, "K*M", d.K, d.M); err != nil {
		return err
	}
	if len(r) != d.Tokens {
		return fmt.Errorf("rmsnorm: r has %d numbers, want Tokens = %d", len(r), d.Tokens)
	}
	return nil
}

// checkLen requires rows*cols numbers, a product that may be past an int.
func checkLen[E any](name string, s []E, want string, rows, cols int) error {
	if rows == 0 && len(s) == 0 || rows > 0 && len(s)%rows == 0 && len(s)/rows == cols {
		return nil
	}
	return fmt.Errorf("rmsnorm: %s has %d numbers, want %s = %d*%d", name, len(s), want, rows, cols)
}

// same says whether two types are one.
func same[T, U any]() bool {
	_, ok := any(*new(T)).(U)
	return ok
}
