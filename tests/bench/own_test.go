package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file reads the daemon's time for requests from the daemon's own metric, gpuarb_request_seconds. hostile_test.go compares the times.

// times is the metric's histogram: for each bucket its upper end in microseconds, and the number of requests
// up to that end.
type times []struct{ upTo, count float64 }

// took reads the histogram of all requests about memory so far.
func took(b *testing.B, m *rig.Machine) (t times) {
	b.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(m.Read("metrics")))
	if err != nil {
		b.Fatal(err)
	}
	for _, of := range families["gpuarb_request_seconds"].GetMetric() {
		if of.GetLabel()[0].GetValue() == "memory" {
			for _, bucket := range of.GetHistogram().GetBucket() {
				t = append(t, struct{ upTo, count float64 }{bucket.GetUpperBound() * 1e6, float64(bucket.GetCumulativeCount())})
			}
		}
	}
	return t
}

// since returns the histogram without the requests of an earlier one.
func (t times) since(earlier times) times {
	for i := range t {
		t[i].count -= earlier[i].count
	}
	return t
}

// percentile returns a percentile in microseconds. It assumes even distribution inside a bucket, like histogram_quantile.
func (t times) percentile(percent float64) float64 {
	want := t[len(t)-1].count * percent / 100
	i := slices.IndexFunc(t, func(bucket struct{ upTo, count float64 }) bool { return bucket.count >= want })
	if i == 0 {
		return t[0].upTo * want / t[0].count
	}
	return t[i-1].upTo + (t[i].upTo-t[i-1].upTo)*(want-t[i-1].count)/(t[i].count-t[i-1].count)
}
