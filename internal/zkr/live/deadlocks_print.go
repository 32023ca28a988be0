package live

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// printDeadlocks tells each cycle, and then who is in it.
func printDeadlocks(w io.Writer, found inspect.Deadlocks, at string, now time.Time) error {
	var out strings.Builder
	for _, c := range found.Cycles {
		fmt.Fprintf(&out, "deadlock: %s\n", story(c))
		if err := printSteps(&out, c, now); err != nil {
			return err
		}
	}
	for _, c := range found.Possible {
		fmt.Fprintf(&out, "possible deadlock, %s: %s\n", c.Condition, story(c))
		if err := printSteps(&out, c, now); err != nil {
			return err
		}
	}
	result := "no deadlock"
	if len(found.Unreadable) > 0 {
		result += " in what zkr may read"
	}
	if n := len(found.Cycles); n > 0 {
		result = look.Count(n, "deadlock")
	}
	if found.Exists {
		fmt.Fprintf(&out, "%s; %s at and below %s, read with %s\n", result, look.Count(found.Lines, "line"), escape.Text(at), look.Count(found.Reads, "read"))
	} else {
		fmt.Fprintf(&out, "%s\n", nothingAt(at))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// nothingAt says that a path does not exist. That is no good news if it was
// mistyped.
func nothingAt(at string) string {
	return escape.Text(at) + ": does not exist (the ensemble deletes the directories of unused locks)"
}

// story tells a cycle: "A holds /x and waits for /y; B holds /y and waits for
// /x".
func story(c inspect.Cycle) string {
	var parts []string
	for i, s := range c.Steps {
		does := fmt.Sprintf("holds %s and waits", escape.Text(s.HasAt))
		if !s.Has.Holds {
			does = "stands ahead and waits"
		}
		part := fmt.Sprintf("%s %s for %s", ownerIn(c, i), does, escape.Text(s.WaitsAt))
		if len(s.Nested) > 0 {
			part += " in its command"
		}
		if len(s.For) > 1 {
			part += fmt.Sprintf(" (%d of %d holders or waiters there have to leave)", s.Need, len(s.For))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// ownerIn names the session of a step: by what it has written into its znode,
// if that tells it apart from the others of the cycle.
func ownerIn(c inspect.Cycle, i int) string {
	session := "session " + wire.SessionText(c.Steps[i].Session)
	own := func(s inspect.Step) string { return string(identity.Parse(s.Has.Data).Own) }
	data := own(c.Steps[i])
	if data == "" {
		return session
	}
	for j, other := range c.Steps {
		if j != i && own(other) == data {
			return fmt.Sprintf("%s (%s)", escape.Data(data), session)
		}
	}
	return escape.Data(data)
}

func printSteps(w io.Writer, c inspect.Cycle, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, s := range c.Steps {
		row := func(who, what, at string, one inspect.Contender) {
			shown := contenderOf(&one, now)
			fmt.Fprintf(table, "  %s\tsession %s\t%s %s\t%s\t%v\t%s\n",
				who, shown.Session, what, escape.Text(at), shown.Mode, shown.Age(), escape.Text(shown.name))
		}
		if s.Has.Holds {
			row(ownerIn(c, i), "holds", s.HasAt, s.Has)
		}
		who := ownerIn(c, i)
		if len(s.Nested) > 0 {
			who = look.DataText(string(s.Waits.Data))
		}
		row(who, "waits for", s.WaitsAt, s.Waits)
	}
	return table.Flush()
}

// deadlocksJSON is what --json prints.
type deadlocksJSON struct {
	Deadlocks  []cycleJSON `json:"deadlocks"`
	Possible   []cycleJSON `json:"possible"`
	Exists     bool        `json:"exists"` // the path
	Lines      int         `json:"lines"`
	Reads      int         `json:"reads"`
	Unreadable []string    `json:"unreadable,omitempty"`
}

type cycleJSON struct {
	Condition string     `json:"condition,omitempty"`
	Steps     []stepJSON `json:"steps"` // each waits for the next, the last for the first
}

type stepJSON struct {
	Session string    `json:"session"`
	HasAt   string    `json:"has_at"`
	Has     Contender `json:"has"` // what the step before waits for
	WaitsAt string    `json:"waits_at"`
	Waits   Contender `json:"waits"`
	Nested  []string  `json:"nested,omitempty"` // the sessions of inner zkr commands, down to the one that waits
	Need    int       `json:"need"`             // how many of these have to leave
	For     []string  `json:"for"`
}

func cyclesJSON(all []inspect.Cycle, now time.Time) []cycleJSON {
	shown := []cycleJSON{}
	for _, c := range all {
		one := cycleJSON{Condition: c.Condition}
		for _, s := range c.Steps {
			step := stepJSON{
				Session: wire.SessionText(s.Session), HasAt: s.HasAt, Has: contenderOf(&s.Has, now),
				WaitsAt: s.WaitsAt, Waits: contenderOf(&s.Waits, now), Need: s.Need,
			}
			for _, nested := range s.Nested {
				step.Nested = append(step.Nested, wire.SessionText(nested))
			}
			for _, b := range s.For {
				step.For = append(step.For, b.Path)
			}
			one.Steps = append(one.Steps, step)
		}
		shown = append(shown, one)
	}
	return shown
}

func printDeadlocksJSON(w io.Writer, found inspect.Deadlocks, _ string, now time.Time) error {
	return cli.JSONLine(w, deadlocksJSON{
		cyclesJSON(found.Cycles, now), cyclesJSON(found.Possible, now), found.Exists, found.Lines, found.Reads, found.Unreadable,
	})
}

// printDeadlocksDot prints sessions as ellipses and locks as boxes. An edge
// leads from who waits to what it waits for, and from there to who has it.
func printDeadlocksDot(w io.Writer, found inspect.Deadlocks, at string, now time.Time) error {
	quoted := func(text string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(escape.Text(text)) + `"`
	}
	var nodes, edges []string
	add := func(list *[]string, format string, args ...any) {
		if line := fmt.Sprintf(format, args...); !slices.Contains(*list, line) {
			*list = append(*list, line)
		}
	}
	for _, c := range slices.Concat(found.Cycles, found.Possible) {
		style := ""
		if c.Condition != "" {
			style = ", style=dashed"
		}
		for i, s := range c.Steps {
			session := quoted("session " + wire.SessionText(s.Session))
			has, waits := contenderOf(&s.Has, now), contenderOf(&s.Waits, now)
			add(&nodes, "  %s [label=%s];", session, quoted(ownerIn(c, i)))
			add(&nodes, "  %s [shape=box];", quoted(s.WaitsAt))
			does := "held by"
			if !has.Holds {
				does = "ahead is"
			}
			add(&edges, "  %s -> %s [label=%s%s];", quoted(s.HasAt), session, quoted(fmt.Sprintf("%s, %v", does, has.Age())), style)
			add(&edges, "  %s -> %s [label=%s%s];", session, quoted(s.WaitsAt), quoted(fmt.Sprintf("waits, %v", waits.Age())), style)
		}
	}
	text := "digraph deadlocks {\n"
	if !found.Exists {
		text = "// " + nothingAt(at) + "\n" + text
	}
	for _, line := range slices.Concat(nodes, edges) {
		text += line + "\n"
	}
	_, err := io.WriteString(w, text+"}\n")
	return err
}
