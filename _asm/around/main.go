// Command around generates the fence of package around.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("!purego")
	TEXT("fence", NOSPLIT, "func()")
	Doc("fence lets other processors see what was written around the caches before it.")
	SFENCE()
	RET()
	Generate()
}
