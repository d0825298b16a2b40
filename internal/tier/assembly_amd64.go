//go:build !purego

package tier

// assembly says that the build has the vector kernels.
const assembly = true
