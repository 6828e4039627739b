package metrics

// This file counts how long the daemon takes for requests. Package daemon calls Took.

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is a kind of request: the label kind.
type Kind string

// The kinds of requests.
const (
	Memory  Kind = "memory"  // memory that is requested or freed, and questions about it
	Objects Kind = "objects" // streams and contexts, and so slots
	Session Kind = "session" // sessions, jobs and leases that begin or end
	Limits  Kind = "limits"  // changes of limits, and cancelled requests
	State   Kind = "state"   // snapshots, metrics and events
)

// kinds are all kinds.
var kinds = [...]Kind{Memory, Objects, Session, Limits, State}

// requestBuckets are in seconds. They are close enough to read a percentile within a third of its
// value.
var requestBuckets = func() (bounds []float64) {
	for _, decade := range []float64{1e6, 1e5, 1e4, 1e3, 1e2} {
		for _, step := range []float64{1, 1.5, 2, 3, 5, 7} {
			bounds = append(bounds, step/decade)
		}
	}
	return append(bounds, 0.1, 1)
}()

// Requests counts how long the daemon took for requests, by kind. Its methods are safe for
// concurrent use.
type Requests struct {
	seconds *prometheus.HistogramVec
	of      map[Kind]prometheus.Observer // has all kinds from the start, so reading it needs no lock
}

func newRequests() *Requests {
	r := &Requests{of: map[Kind]prometheus.Observer{}, seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gpuarb_request_seconds",
		Help: "Time from when a request was read until its reply was handed to the kernel, or the request was queued, by kind of request.", Buckets: requestBuckets}, []string{"kind"})}
	for _, k := range kinds {
		r.of[k] = r.seconds.WithLabelValues(string(k))
	}
	return r
}

// Took counts a request that took a time.
func (r *Requests) Took(k Kind, took time.Duration) { r.of[k].Observe(took.Seconds()) }
