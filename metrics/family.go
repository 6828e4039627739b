package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// family is all series of one name.
type family struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(*view, *output)
}

// counter makes a family of values that only grow while the daemon lives.
func counter(name, help string, labels []string, values func(*view, *output)) family {
	return family{prometheus.NewDesc("gpuarb_"+name, help, labels, nil), prometheus.CounterValue, values}
}

// gauge makes a family of values that rise and fall. Histograms are made with it, too: they have no kind.
func gauge(name, help string, labels []string, values func(*view, *output)) family {
	return family{prometheus.NewDesc("gpuarb_"+name, help, labels, nil), prometheus.GaugeValue, values}
}

// collector is a snapshot as client_golang wants it.
type collector struct {
	view     *view
	families []family
}

// Describe names all families, whether they have values or not.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

// Collect hands over all values.
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

// clean makes a label's value of a name that somebody chose: labels are UTF-8.
func clean(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// distinct makes labels of names, each of which has to be another: a series that is there twice spoils the whole text.
func distinct(names []string) []string {
	seen := make(map[string]bool, len(names))
	labels := make([]string, len(names))
	for i, name := range names {
		label := clean(name)
		for seen[label] {
			label += "'"
		}
		seen[label] = true
		labels[i] = label
	}
	return labels
}

// with are labels, and some more.
func with(labels []string, more ...string) []string { return slices.Concat(labels, more) }
