package page

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

// A stream ends after so long, and the script opens the next one: so no server
// waits long for it, whatever its timeouts are. A viewer that does not take
// what is sent is dropped.
const (
	streamFor   = 20 * time.Second
	writeWithin = 5 * time.Second
	lastWrite   = 100 * time.Millisecond // after Close
	atLeast     = 5 * time.Second        // between two messages, however long a look takes
)

// stream sends what has changed, as server-sent events: "at" with the time
// of the server, and "content" with the part of the page that has changed.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name := query.Get("topic")
	if topics[name] == nil {
		p.fail(w, http.StatusNotFound, "there is no such page")
		return
	}
	v, err := p.view(name, query)
	if err != nil {
		p.fail(w, http.StatusNotFound, err.Error())
		return
	}
	next, leave, err := p.enter(v)
	if err != nil {
		p.refuse(w, err)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies
	out := http.NewResponseController(w)
	stop := context.AfterFunc(p.ctx, func() { _ = out.SetWriteDeadline(time.Now().Add(lastWrite)) }) // Shutdown waits for it
	defer stop()
	ended, tick := time.NewTimer(streamFor), time.NewTicker(atLeast)
	defer ended.Stop()
	defer tick.Stop()
	began := time.Now() // ages are of this instant, so that what has not changed is not sent
	var sent []byte
	for text := "retry: 1000\n\n"; ; {
		shown := p.paper(v, began)
		content, err := shown.content()
		if err != nil {
			return
		}
		if !bytes.Equal(content, sent) {
			text += message("content", content)
			sent = content
		}
		text += message("at", fmt.Append(nil, time.Now().UnixMilli()))
		_ = out.SetWriteDeadline(time.Now().Add(writeWithin)) // where the server can do that
		if p.ctx.Err() != nil {
			return
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		text = ""
		select {
		case <-next:
		case <-tick.C:
		case <-ended.C:
			return
		case <-r.Context().Done():
			return
		case <-p.ctx.Done():
			return
		}
		p.mu.Lock()
		next = p.changed
		p.mu.Unlock()
	}
}

// message returns an event.
func message(name string, data []byte) string {
	return "event: " + name + "\ndata: " + string(bytes.ReplaceAll(data, []byte("\n"), []byte("\ndata: "))) + "\n\n"
}
