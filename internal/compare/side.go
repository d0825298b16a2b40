package compare

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// side is one of the two programs that are compared.
type side struct {
	name   string // baseline or candidate
	binary string
	commit string // that the binary must report; any, where it is empty
}

// git runs a command of git in a folder and returns its output.
func git(ctx context.Context, folder string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...))
}

// output runs a command and returns what it writes; the error has its complaint.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}

// origin says where a side comes from: a binary, or else a revision.
type origin struct{ name, revision, binary string }

// side finds the program, or builds it within folder. The revision is checked out
// in a clone that shares the repository's objects: the Go tool records no commit
// in a program that is built in a worktree of git's.
func (o origin) side(ctx context.Context, repository, folder string) (s side, err error) {
	s.name = o.name
	switch {
	case o.binary != "":
		s.binary, err = filepath.Abs(o.binary)
		return s, err
	case o.revision == "":
		return s, errors.New("want a revision or a program")
	}
	if err := clean(ctx, repository); err != nil {
		return s, err
	}
	hash, err := git(ctx, repository, "rev-parse", "--verify", "--end-of-options", o.revision+"^{commit}")
	if err != nil {
		return s, err
	}
	s.commit, s.binary = strings.TrimSpace(hash), filepath.Join(folder, o.name+".bin")
	tree := filepath.Join(folder, o.name)
	top, err := git(ctx, repository, "rev-parse", "--show-toplevel")
	if err != nil {
		return s, err
	}
	if _, err := git(ctx, repository, "clone", "--quiet", "--shared", "--no-checkout", strings.TrimSuffix(top, "\n"), tree); err != nil {
		return s, err
	}
	if _, err := git(ctx, tree, "checkout", "--quiet", "--detach", s.commit); err != nil {
		return s, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=true", "-o", s.binary, "./cmd/mhc")
	cmd.Dir = tree
	cmd.Env = append(cmd.Environ(), "GOFLAGS=", "GOWORK=off")
	_, err = output(cmd)
	return s, err
}

// clean returns an error where the working tree of a repository has changes,
// which no revision has.
func clean(ctx context.Context, repository string) error {
	changes, err := git(ctx, repository, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the working tree has changes, which no revision would be measured with: commit them first\n%s", strings.TrimRight(changes, "\n"))
	}
	return nil
}
