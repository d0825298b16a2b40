// Command mhc checks and measures this build of the mHC operators.
//
//	mhc verify DIR|FILE...   compare with reference values of another framework
//	mhc info                 version, CPU features, devices
//	mhc bench [OPERATOR...]  time and memory of the operators and the layer
//	mhc compare              two revisions against each other
//
// Every command has -h. The exit status is 0, 1 for a check that failed, and 2
// for arguments or files that cannot be used.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/mhc-go/mhc/internal/bench"
	"github.com/mhc-go/mhc/internal/cli"
	"github.com/mhc-go/mhc/internal/device"
)

type commands struct {
	Verify verifyCommand `cmd:"" help:"Compare this build with reference values of another framework."`
	Info   infoCommand   `cmd:"" help:"Show the version, the CPU features in use and the devices."`
	Bench  benchCommand  `cmd:"" help:"Measure the time and memory of the operators and the layer."`

	Compare compareCommand `cmd:"" help:"Measure two revisions of this repository against each other."`
}

// errFailed is a check that did not hold; it has been reported.
var errFailed = errors.New("failed")

// streams are where a command writes.
type streams struct{ out, err io.Writer }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run runs one command line until ctx is done, and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	type exit int // raised by kong after -h
	defer func() {
		if p := recover(); p != nil {
			code, ok := p.(exit)
			if !ok {
				panic(p)
			}
			status = int(code)
		}
	}()
	parser, err := kong.New(&commands{},
		kong.Name("mhc"),
		kong.Description("Check and measure this build of the mHC operators for Gorgonia."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"devices": strings.Join(device.Names(), ", "), "operators": strings.Join(bench.Names(), ",")},
	)
	if err != nil {
		panic(err) // the commands' tags are wrong
	}
	command, err := parser.Parse(cli.LongFlags(args))
	if err == nil {
		command.BindTo(ctx, (*context.Context)(nil))
		err = command.Run(streams{stdout, stderr})
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return 1
	}
	fmt.Fprintln(stderr, "mhc:", err)
	return 2
}
