package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// corpus is a text as symbols, split into a part to train on and one to
// validate on.
type corpus struct {
	name     string
	checksum uint32 // of the text, to tell it from another of its name
	alphabet []byte // the distinct bytes of the text, sorted; symbol i is alphabet[i]
	symbol   [256]int
	train    []int
	valid    []int
}

// validShare is the share of the text, at its end, that is held out.
const validShare = 0.1

func newCorpus(name string, text []byte, context int) (*corpus, error) {
	c := &corpus{name: name, checksum: crc32.ChecksumIEEE(text)}
	for b := range 256 {
		if bytes.IndexByte(text, byte(b)) >= 0 {
			c.symbol[b] = len(c.alphabet)
			c.alphabet = append(c.alphabet, byte(b))
		}
	}
	symbols := make([]int, len(text))
	for i, b := range text {
		symbols[i] = c.symbol[b]
	}
	held := int(float64(len(text)) * validShare)
	if need := context + 1; held < need {
		return nil, fmt.Errorf("text %s has %d bytes, want at least %d for a context of %d", name, len(text), int(float64(need)/validShare)+1, context)
	}
	c.train, c.valid = symbols[:len(symbols)-held], symbols[len(symbols)-held:]
	return c, nil
}

// standardLibrary is the fixed set of packages, and their order, that makes the
// default text.
var standardLibrary = []string{
	"archive/tar", "archive/zip", "bufio", "bytes", "compress/flate", "container/heap", "container/list",
	"container/ring", "context", "encoding/base64", "encoding/binary", "encoding/csv", "encoding/hex",
	"encoding/json", "encoding/xml", "errors", "flag", "fmt", "hash/crc32", "io", "io/fs", "log", "math/big",
	"mime", "net/mail", "net/textproto", "net/url", "os/exec", "path", "path/filepath", "regexp",
	"regexp/syntax", "sort", "strconv", "strings", "sync", "text/scanner", "text/tabwriter", "text/template",
	"text/template/parse", "time", "unicode/utf8",
}

// readText reads the file, or the standard library's sources where file is
// empty.
func readText(file string) (name string, text []byte, err error) {
	if file != "" {
		text, err = os.ReadFile(file)
		return filepath.Base(file), text, err
	}
	//lint:ignore SA1019 any Go tree's sources will do, and this one needs no go command
	root := runtime.GOROOT()
	if root == "" {
		return "", nil, errors.New("no GOROOT to read the standard library's sources from: give a text with -text FILE")
	}
	var buf bytes.Buffer
	for _, pkg := range standardLibrary {
		files, err := filepath.Glob(filepath.Join(root, "src", pkg, "*.go"))
		if err != nil {
			return "", nil, err
		}
		slices.Sort(files)
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			source, err := os.ReadFile(f)
			if err != nil {
				return "", nil, err
			}
			buf.Write(source)
		}
	}
	if buf.Len() == 0 {
		return "", nil, fmt.Errorf("no sources of the standard library under %s: give a text with -text FILE", root)
	}
	return "the Go standard library " + runtime.Version(), buf.Bytes(), nil
}

// windows draws count windows of length+1 symbols from text: the first length
// are a context, the last length its targets. The draw is a function of seed and
// step alone, so a resumed run sees what the uninterrupted one would have.
func windows(text []int, count, length int, seed, step uint64) [][]int {
	r := rand.New(rand.NewPCG(seed, step))
	out := make([][]int, count)
	for i := range out {
		at := r.IntN(len(text) - length)
		out[i] = text[at : at+length+1]
	}
	return out
}

// decode is the text of symbols.
func (c *corpus) decode(symbols []int) string {
	text := make([]byte, len(symbols))
	for i, s := range symbols {
		text[i] = c.alphabet[s]
	}
	return string(text)
}
