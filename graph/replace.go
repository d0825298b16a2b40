package graph

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// replaceFile makes path the file that write writes. It is written beside path
// under a hidden name, flushed to the disk and renamed: path is the old file or
// the new one, whole, whenever the program ends. On an error path is as before
// and nothing is left beside it.
func replaceFile(path string, write func(io.Writer) error) error {
	beside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
	f, err := os.Create(beside)
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	err = errors.Join(writeAndSync(f, write), f.Close())
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		return fmt.Errorf("graph: %s is not written: %w", path, errors.Join(err, os.Remove(beside)))
	}
	return nil
}

func writeAndSync(f *os.File, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}
