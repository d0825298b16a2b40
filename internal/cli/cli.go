// Package cli lets the project's programs, which parse with kong, take flags
// spelt as Go's own flag package spells them.
package cli

// LongFlags returns args with -name and -name=value turned into --name and
// --name=value wherever name is longer than one letter, up to a lone "--".
// Negative numbers stay as they are.
func LongFlags(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		if long(a) {
			a = "-" + a
		}
		out[i] = a
	}
	return out
}

func long(a string) bool {
	letter := func(b byte) bool { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }
	return len(a) > 2 && a[0] == '-' && letter(a[1]) && a[2] != '='
}
