package main

import (
	"fmt"
	"os"
	"strings"
)

// A reason says why a fault may survive.
type reason struct {
	equivalent bool // no caller can tell the fault from the source; otherwise it is only known
	why        string
}

// readAccepted reads the faults that may survive, by their keys. Entries are
// separated by empty lines. An entry is a comment in lines with a #, or a fault
// as it is printed, followed by a line that begins with "equivalent:" or
// "accepted:" and gives the reason:
//
//	framework (*session).keep
//		- if s.kept == 1 {
//		+ if !(s.kept == 1) {
//		equivalent: the reason
func readAccepted(file string) (map[string]reason, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	accepted := map[string]reason{}
	for entry := range strings.SplitSeq(string(text), "\n\n") {
		key, why, err := readReason(entry)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if key != "" {
			accepted[key] = why
		}
	}
	return accepted, nil
}

func readReason(entry string) (key string, r reason, err error) {
	var lines []string
	for line := range strings.SplitSeq(entry, "\n") {
		trimmed := strings.TrimSpace(line)
		word, why, _ := strings.Cut(trimmed, ": ")
		switch {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case word == "equivalent" || word == "accepted":
			r = reason{equivalent: word == "equivalent", why: why}
		case r.why != "":
			r.why += " " + trimmed
		default:
			lines = append(lines, line)
		}
	}
	key = strings.Join(lines, "\n")
	if (key == "") != (r.why == "") {
		return "", reason{}, fmt.Errorf("a fault needs a reason and a reason a fault:\n%s", entry)
	}
	return key, r, nil
}
