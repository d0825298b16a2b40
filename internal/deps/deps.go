// Package deps holds the requirements of go.mod in place while packages are being written.
package deps

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/ebitengine/purego"
	_ "github.com/nlpodyssey/safetensors"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/stretchr/testify/assert"
	_ "github.com/stretchr/testify/require"
	_ "github.com/x448/float16"
	_ "go4.org/unsafe/assume-no-moving-gc"
	_ "golang.org/x/sys/cpu"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "gonum.org/v1/gonum/stat"
	_ "gonum.org/v1/plot"
	_ "gonum.org/v1/plot/plotter"
	_ "gonum.org/v1/plot/plotutil"
	_ "gonum.org/v1/plot/vg"
	_ "gorgonia.org/gorgonia"
	_ "gorgonia.org/tensor"
	_ "pgregory.net/rapid"
)
