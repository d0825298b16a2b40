package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/golden"
	"github.com/mhc-go/mhc/internal/machine"
)

type verifyCommand struct {
	Paths  []string `arg:"" name:"path" help:"Files of reference values (safetensors), or folders of them."`
	VM     string   `name:"vm" enum:"tape,lisp,both" default:"both" help:"Gorgonia machine: tape, lisp or both."`
	Device string   `default:"cpu" help:"Where the operators run: ${devices}."`
	Stored bool     `help:"Only run a file in the dtype in which it is stored, not also widened to float64."`
	JSON   bool     `name:"json" help:"Write JSON lines instead of a table."`
}

// Help is the text after the summary of -h.
func (verifyCommand) Help() string {
	return `Every file is run through the Gorgonia operators. A row is one tensor: the norm of
the difference over the norm of the reference, and its bound. Files of a training
run are followed step by step. tests/testdata/golden/README.md has the format.

The exit status is 1 if an error is over its bound, and 2 for a file that cannot be
read or run.`
}

// Run verifies all files, and goes on after one that cannot be read.
func (c *verifyCommand) Run(std streams) error {
	dev, err := device.Open(c.Device)
	if err != nil {
		return err
	}
	defer dev.Close()
	files, err := golden.Files(c.Paths)
	if err != nil {
		return err
	}
	opts := golden.Options{Machines: machine.Kinds, Device: dev, Widen: !c.Stored}
	switch c.VM {
	case "tape":
		opts.Machines = []machine.Kind{machine.Tape}
	case "lisp":
		opts.Machines = []machine.Kind{machine.Lisp}
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	lines := json.NewEncoder(std.out)
	if !c.JSON {
		fmt.Fprintln(table, "file\tvm\tdtype\ttensor\terror\tbound\t")
	}
	var passed, failed int
	var unread []string
	for _, file := range files {
		rows, err := golden.Verify(file, opts)
		for _, row := range rows {
			verdict := "pass"
			if row.Pass {
				passed++
			} else {
				failed++
				verdict = "FAIL"
			}
			if c.JSON {
				if err := lines.Encode(row); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.2e\t%.2e\t%s\n", strings.TrimSuffix(row.File, ".safetensors"), row.Machine, row.Dtype, row.Tensor, row.Error, row.Bound, verdict)
		}
		if err != nil {
			unread = append(unread, err.Error())
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(std.err, "%d files on %s: %d tensors pass, %d fail\n", len(files)-len(unread), dev.Name, passed, failed)
	if len(unread) > 0 {
		return fmt.Errorf("%d of %d files cannot be verified:\n%s", len(unread), len(files), strings.Join(unread, "\n"))
	}
	if failed > 0 {
		return errFailed
	}
	return nil
}
