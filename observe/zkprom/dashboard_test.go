package zkprom_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// dashboard is what the tests read of Grafana's format.
type dashboard struct {
	Panels []struct {
		Title, Description, Type string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ Expr string }
		Datasource               struct{ UID string }
		FieldConfig              struct {
			Defaults struct {
				Thresholds struct {
					Steps []struct{ Color string }
				}
			}
		}
	}
	Annotations struct {
		List []struct {
			Name, Expr string
			Datasource struct{ UID string }
		}
	}
	Templating struct {
		List []struct {
			Name, Type, Definition string
			Datasource             struct{ UID string }
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// runDashboard runs each query of the dashboard, with its variables at "All",
// and wants data from each.
func runDashboard(t *testing.T, s *server) {
	t.Helper()
	d := readDashboard(t)
	set := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "10m", "$__range", "10m")
	queries := 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries++
			await(t, fmt.Sprintf("data for panel %q from %s", panel.Title, target.Expr), func() (string, bool) {
				return "none", len(s.query(t, set.Replace(target.Expr))) > 0 // a rate needs two scrapes
			})
		}
	}
	if queries < 45 {
		t.Errorf("%d queries: the dashboard was not read", queries)
	}
	for _, a := range d.Annotations.List { // of the minute that Grafana looks at in each step; here of the whole test
		expr := strings.ReplaceAll(set.Replace(a.Expr), "[1m]", "[10m]")
		await(t, fmt.Sprintf("data for annotation %q from %s", a.Name, expr), func() (string, bool) {
			return "none", len(s.query(t, expr)) > 0
		})
	}
	for _, variable := range d.Templating.List {
		if variable.Type != "query" {
			continue
		}
		inner, _ := strings.CutPrefix(strings.TrimSuffix(variable.Definition, ")"), "label_values(")
		i := strings.LastIndex(inner, ", ")
		var values []string
		s.get(t, "label/"+inner[i+2:]+"/values?match[]="+url.QueryEscape(set.Replace(inner[:i])), &values)
		if len(values) == 0 {
			t.Errorf("variable %s has no values from %s", variable.Name, variable.Definition)
		}
	}
}

// The dashboard shows every metric, says what each panel shows, and takes its
// data source from a variable.
func TestDashboardIsComplete(t *testing.T) {
	d := readDashboard(t)
	var rows []string
	var queries strings.Builder
	stats := 0
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			rows = append(rows, panel.Title)
			continue
		}
		if panel.Title == "" || panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("panel %q: description %q, %d queries", panel.Title, panel.Description, len(panel.Targets))
		}
		if panel.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q has data source %q", panel.Title, panel.Datasource.UID)
		}
		if panel.Type == "stat" {
			if stats++; len(panel.FieldConfig.Defaults.Thresholds.Steps) < 2 {
				t.Errorf("panel %q is green whatever it shows", panel.Title)
			}
			continue // the metrics of single values are shown over time, too
		}
		for _, target := range panel.Targets {
			queries.WriteString(target.Expr + "\n")
		}
	}
	if stats == 0 || len(d.Annotations.List) == 0 {
		t.Errorf("%d single values, %d annotations", stats, len(d.Annotations.List))
	}
	for _, a := range d.Annotations.List {
		if a.Datasource.UID != "${datasource}" {
			t.Errorf("annotation %q has data source %q", a.Name, a.Datasource.UID)
		}
	}
	if want := []string{"Now", "Clients", "Locks", "Elections", "Presences and caches", "Requests"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	shown := metricsIn(queries.String())
	slices.Sort(shown)
	if !slices.Equal(shown, names) {
		t.Errorf("the dashboard shows %q, want all of %q", shown, names)
	}
	if first := d.Templating.List[0]; first.Name != "datasource" || first.Type != "datasource" {
		t.Errorf("the first variable is %q, of type %q", first.Name, first.Type)
	}
}
