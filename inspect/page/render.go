package page

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/look"
)

//go:embed html
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"ago":    ago,
	"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"count":  look.Count,
	"plain":  escape.Text,
	"clock":  func(t time.Time) string { return t.Format(time.TimeOnly) },
	"date":   func(t time.Time) string { return t.Format(time.DateTime) },
	"moment": func(t time.Time) string { return t.Format("15:04:05.000") },
	"instant": func(now, then time.Time, exact bool) any {
		return struct {
			Now, Then time.Time
			Exact     bool
		}{now, then, exact}
	},
	"row": func(now time.Time, c contender) any {
		return struct {
			Now time.Time
			C   contender
		}{now, c}
	},
	"facts": func(now time.Time, title, none string, all []fact) any {
		return struct {
			Now         time.Time
			Title, None string
			Facts       []fact
		}{now, title, none, all}
	},
}).ParseFS(files, "html/*.html"))

// ago says how long ago an instant was.
func ago(now, then time.Time) string {
	return look.Seconds(max(0, now.Sub(then).Seconds()), !then.IsZero())
}

// asset serves what does not change.
func (p *Page) asset(w http.ResponseWriter, r *http.Request, name string) {
	http.ServeFileFS(w, r, files, "html/"+name)
}

// write serves a whole page.
func (p *Page) write(w http.ResponseWriter, code int, shown paper) {
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, "page.html", shown); err != nil { // a fault of the template
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeWithin)) // where the server can do that
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes()) // an error is the viewer's
}

// fail serves a page that says why there is no other.
func (p *Page) fail(w http.ResponseWriter, code int, why string) {
	p.write(w, code, paper{Topic: "error", Title: fmt.Sprint(code, " ", http.StatusText(code)), Topics: []topic{{"./", "Now", false}}, Body: escape.Text(why)})
}

// refuse tells a viewer that there are too many.
func (p *Page) refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "20")
	p.fail(w, http.StatusServiceUnavailable, err.Error())
}

// content returns the part of a page that changes.
func (s paper) content() ([]byte, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, "content", s)
	return out.Bytes(), err
}
