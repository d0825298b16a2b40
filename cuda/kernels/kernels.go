// Package kernels holds the CUDA kernels: their sources and the fatbin that nvcc
// made of them.
package kernels

// Fatbin is the image that the driver loads.
var Fatbin []byte
