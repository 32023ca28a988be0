// Rerun runs go test. A test that has failed is run once more, alone, and if it
// passes then it is named as flaky: on real servers, a busy machine can break
// a test. What no busy machine explains is not run again: see package judge.
//
//	rerun [-C directory] [-run expression] [-later directory] package... -- flag...
//	rerun -again directory
//
// With -later it leaves the second run to -again, which comes when other work
// has ended, and writes the names of the flaky tests to directory/flaky.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// options are what the flags say.
type options struct{ dir, pattern, later, again string }

func main() {
	var o options
	flag.StringVar(&o.dir, "C", ".", "where go test is run")
	flag.StringVar(&o.pattern, "run", "", "as of go test")
	flag.StringVar(&o.later, "later", "", "directory to which tests to be run again are written")
	flag.StringVar(&o.again, "again", "", "run the tests that -later has written to this directory")
	flag.Parse()
	if err := run(o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(o options, args []string, out io.Writer) error {
	if o.again != "" {
		all, err := load(o.again)
		if err != nil {
			return err
		}
		flaky, err := retry(all, out)
		return errors.Join(err, os.WriteFile(filepath.Join(o.again, "flaky"), []byte(flaky), 0o644))
	}
	packages, flags := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		packages, flags = args[:i], args[i+1:]
	}
	_, failures, err := test(o.dir, slices.Concat([]string{"-run", o.pattern}, flags, packages), out)
	if err != nil {
		return err
	}
	var all []retrial
	for _, f := range failures {
		if f.Final {
			err = errors.Join(err, fmt.Errorf("not run again: %v", f))
		}
		all = append(all, retrial{f, o.dir, flags})
		fmt.Fprintf(out, "failed: %v\n", f)
	}
	switch {
	case err != nil:
	case o.later != "":
		err = save(o.later, all)
	default:
		_, err = retry(all, out)
	}
	return err
}

// test runs go test, and returns how many tests have passed, and the failures.
func test(dir string, args []string, out io.Writer) (passed int, failures []failure, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	from, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	passed, failures, err = read(from, out)
	if ended := cmd.Wait(); err == nil && (len(failures) == 0 || cmd.ProcessState.ExitCode() != 1) {
		err = ended // such as of a wrong flag, or a signal
	}
	return passed, failures, err
}

// retrial is a test to be run again.
type retrial struct {
	Failure failure
	Dir     string
	Flags   []string
}

// retry runs tests again, one at a time, and returns a line for each that
// passes.
func retry(all []retrial, out io.Writer) (flaky string, err error) {
	for _, r := range all {
		fmt.Fprintf(out, "again, alone: %v\n", r.Failure)
		args := slices.Concat(r.Flags, []string{"-count=1", "-run", "^" + r.Failure.Test + "$", r.Failure.Package})
		passed, failures, failed := test(r.Dir, args, out)
		if passed == 1 && len(failures) == 0 && failed == nil {
			flaky += fmt.Sprintf("flaky: %v\n", r.Failure)
			continue
		}
		err = errors.Join(err, failed, fmt.Errorf("failed twice: %v", r.Failure))
		for _, f := range failures {
			err = errors.Join(err, fmt.Errorf("failed: %v", f))
		}
	}
	fmt.Fprint(out, flaky)
	return flaky, err
}

// save adds tests to those to be run again.
func save(dir string, all []retrial) error {
	file, err := os.OpenFile(filepath.Join(dir, "again"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, r := range all {
		err = errors.Join(err, json.NewEncoder(file).Encode(r))
	}
	return errors.Join(err, file.Close())
}

func load(dir string) (all []retrial, err error) {
	file, err := os.Open(filepath.Join(dir, "again"))
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	for from := json.NewDecoder(file); ; {
		var r retrial
		if err := from.Decode(&r); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
}
