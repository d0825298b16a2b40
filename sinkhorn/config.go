package sinkhorn

import (
	"fmt"
	"math"
)

// Config names each choice of the projection.
type Config struct {
	// Start says what the normalisations begin from.
	Start Start
	// End says what the last normalisation is over. The first is always over
	// columns and they alternate, so there are 2T-1 that end on Columns and 2T
	// that end on Rows.
	End Axis
	// Iterations is T: 1 to 65536.
	Iterations int
	// Eps is added to every sum before the division (and to the row softmax): a
	// finite number of 0 or more.
	Eps float64
}

const maxIterations = 1 << 16

// Start says what matrix the normalisations begin from.
type Start int

const (
	// RowSoftmax starts from the softmax over each row, plus Eps.
	RowSoftmax Start = iota
	// Exp starts from exp(A - the maximum of each column). The first
	// normalisation cancels the shift if Eps is 0; else the shift has a gradient,
	// which goes to the first entry of the maximum.
	Exp
)

func (s Start) String() string {
	switch s {
	case RowSoftmax:
		return "row-softmax"
	case Exp:
		return "exp"
	}
	return fmt.Sprintf("Start(%d)", int(s))
}

// Axis says which entries one normalisation sums.
type Axis int

const (
	// Columns makes every column sum to 1: the sum runs over the first index.
	Columns Axis = iota
	// Rows makes every row sum to 1: the sum runs over the second index.
	Rows
)

func (a Axis) String() string {
	switch a {
	case Columns:
		return "columns"
	case Rows:
		return "rows"
	}
	return fmt.Sprintf("Axis(%d)", int(a))
}

// Steps is the number of normalisations: even ones (from 0) are over columns,
// odd ones over rows.
func (c Config) Steps() int {
	if c.End == Rows {
		return 2 * c.Iterations
	}
	return 2*c.Iterations - 1
}

// Validate returns an error that names the first setting out of range.
func (c Config) Validate() error {
	if c.Start != RowSoftmax && c.Start != Exp {
		return fmt.Errorf("sinkhorn: Start is %v, want row-softmax or exp", c.Start)
	}
	if c.End != Columns && c.End != Rows {
		return fmt.Errorf("sinkhorn: End is %v, want columns or rows", c.End)
	}
	if c.Iterations < 1 {
		return fmt.Errorf("sinkhorn: Iterations is %d, want 1 or more", c.Iterations)
	}
	if c.Iterations > maxIterations {
		return fmt.Errorf("sinkhorn: Iterations is %d, want %d or fewer", c.Iterations, maxIterations)
	}
	if !(c.Eps >= 0) || math.IsInf(c.Eps, 1) {
		return fmt.Errorf("sinkhorn: Eps is %v, want a finite number of 0 or more", c.Eps)
	}
	return nil
}
