package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind groups requests by what they are about: the label kind.
type Kind string

// The kinds of requests.
const (
	Memory  Kind = "memory"  // bytes that are asked for or given back, and how many there are
	Objects Kind = "objects" // streams and contexts, and so slots
	Session Kind = "session" // sessions, jobs and leases that begin and end
	Limits  Kind = "limits"  // changes of limits, and requests that are cancelled
	State   Kind = "state"   // snapshots, metrics and events
)

// kinds are all of them.
var kinds = [...]Kind{Memory, Objects, Session, Limits, State}

// requestBuckets are seconds. They are close enough together to tell a percentile by, within a third.
var requestBuckets = func() (bounds []float64) {
	for _, decade := range []float64{1e6, 1e5, 1e4, 1e3, 1e2} {
		for _, step := range []float64{1, 1.5, 2, 3, 5, 7} {
			bounds = append(bounds, step/decade)
		}
	}
	return append(bounds, 0.1, 1)
}()

// Requests counts how long the daemon took for requests, by kind. Its methods are safe for concurrent use.
type Requests struct {
	seconds *prometheus.HistogramVec
	of      map[Kind]prometheus.Observer // all are there, and so a look-up takes no lock
}

func newRequests() *Requests {
	r := &Requests{of: map[Kind]prometheus.Observer{}, seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gpuarb_request_seconds",
		Help: "Time from when a request was read until its reply was handed to the kernel, or the request was queued, by kind of request.", Buckets: requestBuckets}, []string{"kind"})}
	for _, k := range kinds {
		r.of[k] = r.seconds.WithLabelValues(string(k))
	}
	return r
}

// Took counts one request.
func (r *Requests) Took(k Kind, took time.Duration) { r.of[k].Observe(took.Seconds()) }
