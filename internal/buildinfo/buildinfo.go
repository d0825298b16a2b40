// Package buildinfo reads what the Go tool has recorded in the running program.
package buildinfo

import "runtime/debug"

// Unknown is the version or commit of a build that has none recorded.
const Unknown = "unknown"

// Build is the origin of the running program.
type Build struct {
	Version string
	// Commit is the revision that it was built from.
	Commit string
	// Time is when that was committed.
	Time string
	// Modified says that the working tree had changes.
	Modified bool
	// Modules are the versions of the modules in it.
	Modules map[string]string
}

// Read returns what is recorded.
func Read() Build {
	b := Build{Version: Unknown, Commit: Unknown, Modules: map[string]string{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, m := range info.Deps {
		b.Modules[m.Path] = m.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
