package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// This file checks the events that the page gets: which ones are kept, how many, and which a reader
// that reconnects gets again. history_test.go has the states; server_test.go has readers of /events
// that are slow or too many.

func line(at time.Time, kind, text string) string {
	return fmt.Sprintf(`{"v":1,"time":%q,"kind":%q,"device":1,"text":%q}`+"\n", at.Format(time.RFC3339Nano), kind, text)
}

// TestHappened checks that events are kept, bounded and sent on, except frequent kinds.
func TestHappened(t *testing.T) {
	h := &eventLog{hub: newHub()}
	f, _ := h.hub.enter("a")
	h.add([]byte(line(noon, "refused", "no") + line(noon, "granted", "yes") + "nonsense\n{}\n" + line(noon.Add(time.Second), "died", "gone")))
	for _, want := range []string{`"kind":"refused","device":1,"text":"no"`, `"kind":"died","device":1,"text":"gone"`} {
		select {
		case message := <-f.messages:
			if !strings.HasPrefix(string(message), "event: happened\n") || !strings.Contains(string(message), want) {
				t.Errorf("%s, want %s", message, want)
			}
		default:
			t.Fatalf("nobody is told of %s", want)
		}
	}
	if got := h.since(noon.Add(time.Second)); len(got) != 1 || got[0].Kind != "died" {
		t.Errorf("since then %v", got)
	}
	for range 2 * maxEvents {
		h.add([]byte(line(noon, "refused", strings.Repeat("ü", maxEventText))))
	}
	if len(h.pageEvents) != maxEvents || len(h.pageEvents[0].Text) > maxEventText+len("…") {
		t.Errorf("%d are kept, with texts of %d bytes", len(h.pageEvents), len(h.pageEvents[0].Text))
	}
}

// TestEventsSinceAnID checks that a reader of /events gets the events after the ID that it names,
// also those from before it asked.
func TestEventsSinceAnID(t *testing.T) {
	url, s := start(t, &daemon{})
	s.watcher.events.add([]byte(line(noon, "refused", "first") + line(noon, "refused", "second") + line(noon, "refused", "third")))
	next := follow(t, url+"/events?after=1")
	next(`"id":2`)
	next(`"id":3`)
	next(`"error":`) // the state follows the events
	s.watcher.events.add([]byte(line(noon, "died", "fourth")))
	next(`"id":4`)
	answer, err := http.Get(url + "/events?after=x")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("after=x: %s", answer.Status)
	}
}

// FuzzMark checks that any line is sent as one line of JSON, or not at all.
func FuzzMark(f *testing.F) {
	f.Add([]byte(line(noon, "refused", "a\nb\u2028")))
	f.Add([]byte(`{"time":"2026-01-02T12:00:00Z","kind":"\ud800","device":-1,"text":"\u0000"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m := parseEvent(line)
		if m == nil {
			return
		}
		text, err := json.Marshal(m)
		if err != nil || bytes.ContainsAny(text, "\r\n") || !json.Valid(text) {
			t.Errorf("%q, %v", text, err)
		}
	})
}
