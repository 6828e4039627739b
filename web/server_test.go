package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the page's server over HTTP: each endpoint, a daemon that does not answer,
// readers that are slow or too many, and how often the daemon is asked. A state that the test sets
// takes the place of the daemon. tests/web uses a browser and a daemon.

// daemon is a daemon with a state, or with an error.
type daemon struct {
	state          atomic.Pointer[figures.Snapshot]
	asked, scraped atomic.Int64
}

var errAway = errors.New("nobody is there")

func (d *daemon) ask(context.Context) (figures.Snapshot, error) {
	d.asked.Add(1)
	if s := d.state.Load(); s != nil {
		return *s, nil
	}
	return figures.Snapshot{}, errAway
}

func (d *daemon) metrics(context.Context) ([]byte, error) {
	if d.state.Load() == nil {
		return nil, errAway
	}
	return fmt.Appendf(nil, "asked %d\n", d.scraped.Add(1)), nil
}

// start starts a server for a daemon. While a reader follows, the server asks as often as it can.
func start(t *testing.T, d *daemon) (url string, s *server) {
	t.Helper()
	s = newServer(d.ask, d.metrics)
	s.watcher.interval = time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	embeddedFiles, watched := make(chan error, 1), make(chan struct{})
	go func() { embeddedFiles <- s.serve(ctx, l, nil, slog.New(slog.DiscardHandler)) }()
	go func() { defer close(watched); s.watcher.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := bounded.Receive(t, "the server ends", embeddedFiles); err != nil {
			t.Error(err)
		}
		<-watched
	})
	return "http://" + l.Addr().String(), s
}

func fetch(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	client := http.Client{Timeout: bounded.Patience}
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// TestEndpoints checks that each endpoint answers with its content type.
func TestEndpoints(t *testing.T) {
	d := &daemon{}
	d.state.Store(held(lease(1, 10, 5)))
	url, s := start(t, d)
	bounded.Until(t, "the state is known", func() bool { return s.watcher.latest().state != nil })
	for path, want := range map[string]struct{ contentType, text string }{
		"/":          {typeHTML, "<title>gpuarb</title>"},
		"/page.css":  {typeCSS, "prefers-color-scheme"},
		"/page.js":   {typeScript, "EventSource"},
		"/chart.js":  {typeScript, "class Chart"},
		"/model.js":  {typeScript, "class Model"},
		"/uplot.js":  {typeScript, "uPlot"},
		"/uplot.css": {typeCSS, ".uplot"},
		"/icon.svg":  {typeSVG, "<svg"},
		"/state":     {typeJSON, `"used_bytes":5`},
		"/history":   {typeJSON, `"capacity_bytes":[900`},
		"/metrics":   {typeMetrics, "asked 1"},
	} {
		answer, text := fetch(t, url+path)
		if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != want.contentType || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d, %q, without %q in %d bytes", path, answer.StatusCode, answer.Header.Get("Content-Type"), want.text, len(text))
		}
		if want.contentType == typeJSON && !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON: %s", path, text)
		}
	}
	for _, path := range []string{"/assets/page.html", "/../etc/passwd", "/uplot/LICENSE", "/nothing"} {
		if answer, _ := fetch(t, url+path); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
}

// TestNoDaemon checks that the answer says why the daemon does not answer.
func TestNoDaemon(t *testing.T) {
	url, s := start(t, &daemon{})
	bounded.Until(t, "it was asked", func() bool { return errors.Is(s.watcher.latest().err, errAway) })
	answer, text := fetch(t, url+"/state")
	if answer.StatusCode != http.StatusServiceUnavailable || text != `{"error":"nobody is there"}` {
		t.Errorf("/state: %d %s", answer.StatusCode, text)
	}
	if answer, _ := fetch(t, url+"/metrics"); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/metrics: %d", answer.StatusCode)
	}
}

// follow begins to read events, and returns a function that waits for the next event with a text.
func follow(t *testing.T, url string) func(text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bounded.Patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("/events: %d %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	lines := bufio.NewReader(answer.Body)
	return func(text string) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("no event with %q: %v", text, err)
			}
			if strings.Contains(line, text) {
				return
			}
		}
	}
}

// TestEvents checks that a reader sees each change of the state, and each loss and return of the
// daemon.
func TestEvents(t *testing.T) {
	d := &daemon{}
	d.state.Store(held(lease(1, 10, 5)))
	url, s := start(t, d)
	next := follow(t, url+"/events")
	next(`"used_bytes":5`)
	d.state.Store(held(lease(1, 10, 6)))
	next(`"used_bytes":6`)
	d.state.Store(nil)
	next(`"error":"nobody is there"`)
	d.state.Store(held(lease(1, 10, 7)))
	next(`"used_bytes":7`)
	if n := s.watcher.hub.len(); n != 1 {
		t.Errorf("%d follow", n)
	}
}

// TestFollowersAreBounded also checks that a peer with all slots keeps no other peer out.
func TestFollowersAreBounded(t *testing.T) {
	h := newHub()
	var all []*follower
	for range maxFollowers {
		f, ok := h.enter("user 1")
		if !ok {
			t.Fatalf("%d is one too many", len(all)+1)
		}
		all = append(all, f)
	}
	if _, ok := h.enter("user 1"); ok {
		t.Error("there is no bound")
	}
	h.leave(all[0])
	if _, ok := h.enter("user 1"); !ok {
		t.Error("nobody can come where one has gone")
	}
	if _, ok := h.enter("user 2"); !ok || h.len() != maxFollowers {
		t.Errorf("another user comes in: %t; %d follow", ok, h.len())
	}
	if _, open := <-all[1].messages; open {
		t.Error("the oldest of who had all is not dropped")
	}
	h.leave(all[1]) // its handler does the same
	if h.len() != maxFollowers {
		t.Errorf("%d follow", h.len())
	}
}

// TestSlowReader checks that a reader that does not read is dropped, and blocks no other reader
// meanwhile.
func TestSlowReader(t *testing.T) {
	h := newHub()
	slow, _ := h.enter("a")
	quick, _ := h.enter("b")
	for i := range maxUnread + 1 {
		h.send([]byte("x"))
		if string(<-quick.messages) != "x" {
			t.Fatalf("message %d is another", i)
		}
	}
	if h.len() != 1 {
		t.Fatalf("%d follow: the slow one was not dropped", h.len())
	}
	n := 0
	for range slow.messages {
		n++
	}
	if n != maxUnread {
		t.Errorf("%d messages for the slow one", n)
	}
	h.leave(slow) // without effect, because send has removed it
}

// TestReaderThatDoesNotRead uses a real connection that stays open, and checks that the server
// closes it.
func TestReaderThatDoesNotRead(t *testing.T) {
	d := &daemon{}
	long := held(lease(1, 10, 5))
	long.Leases[0].Command = strings.Repeat("x", 20<<10)
	d.state.Store(long)
	url, s := start(t, d)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	bounded.Until(t, "it follows", func() bool { return s.watcher.hub.len() == 1 })
	bounded.Until(t, "it is dropped", func() bool { return s.watcher.hub.len() == 0 })
}

// TestNobodyLooks checks that requests for the state do not change how often the daemon is asked.
func TestNobodyLooks(t *testing.T) {
	d := &daemon{}
	d.state.Store(held())
	url, s := start(t, d)
	bounded.Until(t, "the state is known", func() bool { return s.watcher.latest().state != nil })
	for range 50 {
		fetch(t, url+"/state")
	}
	if n := d.asked.Load(); n > 3 { // on a slow machine the watcher may ask again by itself
		t.Errorf("50 readers had the daemon be asked %d times", n)
	}
}

// TestMetricsAreShared checks that requests within a second share an answer. An error is not
// shared.
func TestMetricsAreShared(t *testing.T) {
	d := &daemon{}
	m := &cachedText{make: d.metrics}
	if _, err := m.get(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("without a daemon: %v", err)
	}
	d.state.Store(held())
	for i, want := range []string{"asked 1\n", "asked 1\n", "asked 2\n"} {
		if i == 1 {
			m.till = time.Now().Add(time.Hour)
		} else {
			m.till = time.Time{}
		}
		if text, err := m.get(t.Context()); err != nil || string(text) != want {
			t.Errorf("question %d: %q, %v, want %q", i, text, err, want)
		}
	}
}

// TestBoundedConnections checks that a connection above the limit is closed, and accepted when
// another has ended.
func TestBoundedConnections(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newBoundedListener(raw, 1)
	accepted := make(chan net.Conn, 2)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := bounded.Receive(t, "a connection is accepted", accepted)
	if n, err := dial().Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("two are accepted where one may be: %d bytes, %v", n, err)
	}
	first.Close()
	first.Close() // closing twice frees one slot
	dial()
	bounded.Receive(t, "the next one is accepted", accepted).Close()
	raw.Close()
	if c, ok := <-accepted; ok {
		t.Errorf("one more is accepted: %v", c)
	}
	if l.peerSlots.taken != 0 || len(l.peerSlots.of) != 0 {
		t.Errorf("%d places are taken, by %v", l.peerSlots.taken, l.peerSlots.of)
	}
}

// TestHistoryIsShared checks that /history is computed at most once a second.
func TestHistoryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil, nil)
		ask := func() string {
			answer := httptest.NewRecorder()
			s.serveHistory(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/history", nil))
			return answer.Body.String()
		}
		first := ask()
		s.watcher.history.add(time.Now(), &figures.Snapshot{Devices: []figures.DeviceState{{Index: 5}}})
		if again := ask(); again != first {
			t.Errorf("within a second it is made again: %s", again)
		}
		time.Sleep(cacheFor)
		if later := ask(); !strings.Contains(later, `"index":5`) {
			t.Errorf("a second later it is the same: %s", later)
		}
	})
}
