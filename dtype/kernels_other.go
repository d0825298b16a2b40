//go:build !amd64 || purego

package dtype

func widenBFloat16(_ []float32, _ []BFloat16) int  { return 0 }
func widenFloat16(_ []float32, _ []Float16) int    { return 0 }
func narrowBFloat16(_ []BFloat16, _ []float32) int { return 0 }
func narrowFloat16(_ []Float16, _ []float32) int   { return 0 }
