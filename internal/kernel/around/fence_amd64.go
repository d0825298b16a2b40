//go:build !purego

package around

//go:generate go run -C ../../../_asm ./around -pkg around -out ../internal/kernel/around/around_amd64.s -stubs ../internal/kernel/around/stubs_amd64.go
