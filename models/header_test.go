package models

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A model is a .pml file. The comment that it begins with says what is checked:
// README.md describes its tables.
type model struct {
	file      string
	code      [][]string // action | file: function
	runs      []run
	variants  []variant
	unreached [][]string // where | statement | why
	measured  []measurement
}

// A run is an exhaustive search of a model for one property, or for violated
// assertions and deadlocks.
type run struct {
	name   string
	ltl    string // empty: assertions and deadlocks
	bounds map[size]string
}

// size chooses the bounds of a run.
type size string

const (
	small size = "small" // in CI
	large size = "large" // make models
)

// A variant is the model with one thing broken, which a run must find.
type variant struct {
	flag, wrong string
	run         run
	bounds      string
}

// A measurement is what a run found, as the model states it.
type measurement struct {
	run    string
	size   size
	states int
}

// models reads the headers of all models.
func models(t *testing.T) []*model {
	t.Helper()
	files, err := filepath.Glob("*.pml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no models: %v", err)
	}
	var all []*model
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseHeader(file, string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, m)
	}
	return all
}

// parseHeader reads the comment that a model begins with.
func parseHeader(file, text string) (*model, error) {
	text, ok := strings.CutPrefix(text, "/*")
	header, _, closed := strings.Cut(text, "*/")
	if !ok || !closed {
		return nil, fmt.Errorf("does not begin with a comment")
	}
	tables := make(map[string][][]string)
	section := ""
	for line := range strings.Lines(header) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
		case line[0] != ' ':
			section = line
			tables[section] = nil
		case strings.Contains(line, " | "):
			cells := strings.Split(line, " | ")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			tables[section] = append(tables[section], cells)
		}
	}
	m := &model{file: file}
	_, proves := tables["Proves"]
	_, leavesOut := tables["Leaves out"]
	if !proves || !leavesOut {
		return nil, fmt.Errorf("does not say what it proves, or what it leaves out")
	}
	return m, m.fill(tables)
}

// rows returns the rows of a table without its heading.
func rows(tables map[string][][]string, section string, columns int) ([][]string, error) {
	all := tables[section]
	for _, row := range all {
		if len(row) != columns {
			return nil, fmt.Errorf("%s: a row of %d columns, not %d: %q", section, len(row), columns, row)
		}
	}
	if len(all) < 2 {
		return nil, nil
	}
	return all[1:], nil
}

func (m *model) fill(tables map[string][][]string) (err error) {
	if m.code, err = rows(tables, "Code", 2); err != nil {
		return err
	}
	if m.unreached, err = rows(tables, "Unreached", 3); err != nil {
		return err
	}
	runs, err := rows(tables, "Runs", 4)
	if err != nil {
		return err
	}
	names := make(map[string]bool)
	for _, row := range runs {
		r := run{name: row[0], bounds: map[size]string{small: row[2], large: row[3]}}
		if row[1] != "assertions" {
			r.ltl, _ = strings.CutPrefix(row[1], "ltl ")
		}
		names[r.name] = true
		m.runs = append(m.runs, r)
	}
	columns := 3
	if heading := tables["Broken"]; len(heading) > 0 {
		columns = len(heading[0])
	}
	broken, err := rows(tables, "Broken", columns)
	if err != nil {
		return err
	}
	for _, row := range broken {
		r := m.run(row[1])
		if r.name == "" {
			return fmt.Errorf("variant %s: no run %s", row[0], row[1])
		}
		bounds := r.bounds[small]
		if columns == 4 {
			bounds = row[2]
		}
		m.variants = append(m.variants, variant{flag: row[0], run: r, bounds: bounds, wrong: row[columns-1]})
	}
	measured, err := rows(tables, "Measured", 5)
	if err != nil {
		return err
	}
	for _, row := range measured {
		states, err := strconv.Atoi(strings.ReplaceAll(row[2], ",", ""))
		if err != nil || !names[row[0]] {
			return fmt.Errorf("measured: %q", row)
		}
		m.measured = append(m.measured, measurement{run: row[0], size: size(row[1]), states: states})
	}
	switch {
	case len(m.code) == 0:
		return fmt.Errorf("names no code")
	case len(m.runs) == 0:
		return fmt.Errorf("has no runs")
	case len(m.variants) < 3:
		return fmt.Errorf("has %d broken variants, must have at least 3", len(m.variants))
	}
	return nil
}

// run returns the run of that name.
func (m *model) run(name string) run {
	for _, r := range m.runs {
		if r.name == name {
			return r
		}
	}
	return run{}
}

// states returns how many states the model says that a run has, 0 if it does
// not say.
func (m *model) states(run string, s size) int {
	for _, one := range m.measured {
		if one.run == run && one.size == s {
			return one.states
		}
	}
	return 0
}
