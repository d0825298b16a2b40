//go:build mhccuda

package deps

import _ "gorgonia.org/cu"
