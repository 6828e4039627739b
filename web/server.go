package web

// This file routes requests to handlers. run.go starts the server.

import (
	"cmp"
	"context"
	"embed"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/figures"
)

//go:embed assets
var assets embed.FS

// Content types are written out because those of package mime depend on the machine.
const (
	typeHTML   = "text/html; charset=utf-8"
	typeCSS    = "text/css; charset=utf-8"
	typeScript = "text/javascript; charset=utf-8"
	typeSVG    = "image/svg+xml"
	typeJSON   = "application/json"
	// The text format of Prometheus.
	typeMetrics = "text/plain; version=0.0.4; charset=utf-8"
)

// embeddedFiles are the files of the page, and their paths.
var embeddedFiles = []struct{ at, name, contentType string }{
	{"/{$}", "page.html", typeHTML},
	{"/page.css", "page.css", typeCSS},
	{"/page.js", "page.js", typeScript},
	{"/devices.js", "devices.js", typeScript},
	{"/tables.js", "tables.js", typeScript},
	{"/table.js", "table.js", typeScript},
	{"/element.js", "element.js", typeScript},
	{"/chart.js", "chart.js", typeScript},
	{"/model.js", "model.js", typeScript},
	{"/icon.svg", "icon.svg", typeSVG},
	{"/uplot.js", "uplot/uPlot.iife.min.js", typeScript},
	{"/uplot.css", "uplot/uPlot.min.css", typeCSS},
}

// server answers requests from what its watcher has.
type server struct {
	watcher *watcher
	metrics cachedText
	history map[string]*cachedText // by the name of a span
	pasts   []*past                // by the index of a span
}

// newServer makes a server. state and metrics ask the daemon for its state and its metrics.
func newServer(state func(context.Context) (figures.Snapshot, error), metrics func(context.Context) ([]byte, error)) *server {
	w := newWatcher(state)
	s := &server{watcher: w, metrics: cachedText{make: metrics}, history: map[string]*cachedText{}}
	for i, of := range spans {
		p := &past{of: of}
		if of.step < time.Minute {
			p.of = span{of.name, time.Minute, int(of.length() / time.Minute)}
		}
		s.pasts = append(s.pasts, p)
		s.history[of.name] = &cachedText{make: func(ctx context.Context) ([]byte, error) {
			points := w.history.points(i)
			if began := w.history.began(); !began.IsZero() {
				if before := p.points(ctx, time.Now().Add(-of.length()), began); len(before) > 0 {
					points = slices.Concat(before, []point{{at: began}}, points) // with a gap between
				}
			}
			return historyJSON(of, points, w.events)
		}}
	}
	return s
}

// readPast lets all spans begin with what a history knows.
func (s *server) readPast(ask func(context.Context, time.Time, time.Time, func(rows.Minute)) error) {
	for _, p := range s.pasts {
		p.ask = ask
	}
}

// handler routes all paths, behind the guard.
func (s *server) handler(hosts []string) http.Handler {
	mux := http.NewServeMux()
	for _, file := range embeddedFiles {
		mux.HandleFunc(file.at, func(w http.ResponseWriter, _ *http.Request) { serveFile(w, file.name, file.contentType) })
	}
	mux.HandleFunc("/state", s.serveState)
	mux.HandleFunc("/history", s.serveHistory)
	mux.HandleFunc("/events", s.watcher.serveEvents)
	mux.HandleFunc("/metrics", s.serveMetrics)
	return newGuard(hosts, mux)
}

func serveFile(w http.ResponseWriter, name, contentType string) {
	data, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.Error(w, "this file is missing from the program: gpuarbd was built without it", http.StatusInternalServerError)
		return
	}
	send(w, contentType, data)
}

// send answers with data. An error of writing means that the reader has disconnected.
func send(w http.ResponseWriter, contentType string, data []byte) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(data)
}

func (s *server) serveState(w http.ResponseWriter, _ *http.Request) {
	now := s.watcher.latest()
	if now.state == nil {
		unavailable(w, now.err)
		return
	}
	send(w, typeJSON, now.state)
}

// unavailable answers that the daemon does not answer, and why.
func unavailable(w http.ResponseWriter, why error) {
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(downJSON(why))
}

func (s *server) serveHistory(w http.ResponseWriter, r *http.Request) {
	name := cmp.Or(r.URL.Query().Get("span"), spans[0].name)
	of := s.history[name]
	if of == nil {
		http.Error(w, "span: there are hour, day and week", http.StatusBadRequest)
		return
	}
	text, err := of.get(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, typeJSON, text)
}

func (s *server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	text, err := s.metrics.get(r.Context())
	if err != nil {
		unavailable(w, err)
		return
	}
	send(w, typeMetrics, text)
}

// serve answers requests at a listener until ctx ends.
func (s *server) serve(ctx context.Context, l net.Listener, hosts []string, log *slog.Logger) error {
	h := &http.Server{
		Handler:           s.handler(hosts),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: withPeer,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { h.Close() })()
	err := h.Serve(newBoundedListener(l, maxConns))
	if ctx.Err() != nil {
		return nil
	}
	return err
}
