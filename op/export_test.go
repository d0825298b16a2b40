package op

// Poison writes NaN all over the memory that the arena would give out again.
func (a *Arena) Poison() {
	for _, buffers := range a.free {
		for _, b := range buffers {
			for i := range b {
				b[i] = ^uint64(0)
			}
		}
	}
}

// Held is the number of bytes in the arena, given out and free.
func (a *Arena) Held() (bytes int) {
	for _, b := range a.used {
		bytes += 8 * len(b)
	}
	for _, buffers := range a.free {
		for _, b := range buffers {
			bytes += 8 * len(b)
		}
	}
	return bytes
}
