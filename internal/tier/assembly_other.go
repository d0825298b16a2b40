//go:build !amd64 || purego

package tier

// assembly says that the build has the vector kernels.
const assembly = false
