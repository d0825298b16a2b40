// Package kernels holds the CUDA kernels as one fatbin: machine code for sm_80 and sm_90, and compute_90 PTX, which the driver
// compiles for what came after. build.sh builds it from the sources beside it. Package plan knows names and arguments.
package kernels

import _ "embed"

// Fatbin is the image to load as a module.
//
//go:embed mhc.fatbin
var Fatbin []byte
