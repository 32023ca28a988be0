package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
)

// The file of --servers-file has what --servers has, over one line or several.
// Empty lines, and lines that begin with #, are ignored. The client reads it
// again while it runs: see framework.WithServersFunc.

// longestServersFile is the size of the largest file of servers. It stops a
// mistake, such as a device, from filling the memory.
const longestServersFile = 1 << 20

// readServers reads the list of servers from a file.
func readServers(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longestServersFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > longestServersFile {
		return "", fmt.Errorf("%s: longer than %d bytes", name, longestServersFile)
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if line = strings.Trim(line, ", \t\r\n"); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	if len(list) == 0 {
		return "", fmt.Errorf("%s: %w", name, errNoServers)
	}
	return strings.Join(list, ","), nil
}

var errNoServers = errors.New("no server in the file")

// fromServersFile sets Servers to what the file of --servers-file has, if there
// is one, and returns the option that makes a client read it again.
func (e *Ensemble) fromServersFile() ([]framework.Option, error) {
	if e.ServersFile == "" {
		return nil, nil
	}
	list, err := readServers(e.ServersFile)
	if err != nil {
		return nil, fmt.Errorf("--servers-file: %w", err)
	}
	e.Servers = list
	return []framework.Option{framework.WithServersFunc(func(context.Context) (string, error) { return readServers(e.ServersFile) })}, nil
}
