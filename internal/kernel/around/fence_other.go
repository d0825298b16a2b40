//go:build !amd64 || purego

package around

// fence does nothing: the portable code writes through the caches.
func fence() {}
