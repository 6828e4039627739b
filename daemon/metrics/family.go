package metrics

// This file has the types with which metrics are defined, and passes them to the library of
// Prometheus. devices.go, machine.go and users.go define metrics; exporter.go passes them on.

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// family is a metric with all its series.
type family struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(*view, *output)
}

// counter makes a family of values that only grow while the daemon runs.
func counter(name, help string, labels []string, values func(*view, *output)) family {
	return family{prometheus.NewDesc("gpuarb_"+name, help, labels, nil), prometheus.CounterValue, values}
}

// gauge makes a family of values that rise and fall. It also makes histograms, for which the kind
// does not matter.
func gauge(name, help string, labels []string, values func(*view, *output)) family {
	return family{prometheus.NewDesc("gpuarb_"+name, help, labels, nil), prometheus.GaugeValue, values}
}

// collector passes a snapshot to client_golang.
type collector struct {
	view     *view
	families []family
}

// Describe sends the descriptions of all families, with or without values.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

// Collect sends all values.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, f := range c.families {
		f.values(c.view, &output{f, to})
	}
}

// output takes the values of a family.
type output struct {
	family family
	to     chan<- prometheus.Metric
}

func (o *output) value(v float64, labels ...string) {
	o.to <- prometheus.MustNewConstMetric(o.family.desc, o.family.kind, v, labels...)
}

func (o *output) histogram(count uint64, sum float64, upTo map[float64]uint64, labels ...string) {
	o.to <- prometheus.MustNewConstHistogram(o.family.desc, count, sum, upTo, labels...)
}

// appendLabels returns labels and more labels as a new slice.
func appendLabels(labels []string, more ...string) []string { return slices.Concat(labels, more) }
