package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "version [flags]",
		Short:                 "Print the version of zkr",
		Long: `Prints the version of zkr, the revision that it was built from, and the Go release
that built it. Copy this into a bug report. It needs no ensemble.

--json prints one object.`,
		Example: `  zkr version
  zkr version --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usage("version takes no arguments")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			print := printVersion
			if asJSON {
				print = func(w io.Writer, b build) error { return json.NewEncoder(w).Encode(b) }
			}
			info, _ := debug.ReadBuildInfo() // nil in a binary built without modules
			return FailedIf(print(cmd.OutOrStdout(), newBuild(info)))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// build says which sources a binary was built from, and how.
type build struct {
	Version  string `json:"version"`            // "v0.1.0", or "(devel)" where the Go command knew none
	Revision string `json:"revision,omitempty"` // of the commit; empty if the sources came from the module proxy
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // the sources differed from the commit
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// newBuild reads what the Go command recorded in the binary; info may be nil.
func newBuild(info *debug.BuildInfo) build {
	b := build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info == nil {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// printVersion prints one line: what a person pastes into a report.
func printVersion(w io.Writer, b build) error {
	var out strings.Builder
	fmt.Fprintf(&out, "zkr %s", b.Version)
	if b.Revision != "" {
		fmt.Fprintf(&out, ", revision %s of %s", b.Revision, b.Time)
	}
	if b.Modified {
		out.WriteString(", modified")
	}
	fmt.Fprintf(&out, ", %s %s/%s\n", b.Go, b.OS, b.Arch)
	_, err := io.WriteString(w, out.String())
	return err
}
