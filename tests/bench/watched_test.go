package bench

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// inBrowser has a browser show the page of BenchmarkWatched.
var inBrowser = flag.Bool("bench.browser", false, "have chromium show the page that BenchmarkWatched follows")

// BenchmarkWatched is what those who look cost those who ask: a thousand leases, a hundred readers with a file a second each, a
// page that somebody follows, a scrape a second, and `gpuarb top`. A request is for bytes, asked beside an echo of the same size, alone
// and while they look; `own` is the daemon's own time for it, by its metric gpuarb_request_seconds, without what the kernel takes to
// bring messages. `top` is what its process takes, `rss` what the daemon's memory has grown by between the first
// round of looking and the last.
func BenchmarkWatched(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices, Stopped: true, Config: "schema_version = 1\n[http]\nlisten = \"127.0.0.1:0\"\n"})
	if err := os.Chmod(m.Dir, 0o755); err != nil { // the page's process is another user's
		b.Fatal(err)
	}
	m.Start()
	crowd(b, m, 1000, 2)
	p := asker(b, m)
	before := took(b, m)
	alone := asked(b, p)
	own := took(b, m).since(before)
	top := m.Terminal(120, 40, `exec "$G" top`)
	top.Await("lease")
	watch(b, m)
	asked(b, p)
	memory, _ := resident(b, m)
	began, used, spent := time.Now(), cpuOf(b, top.PID()), cpu(b, m)
	before = took(b, m)
	var watched request
	for b.Loop() {
		watched = asked(b, p)
	}
	ownWatched := took(b, m).since(before)
	grown, _ := resident(b, m)
	seconds := time.Since(began).Seconds()
	b.ReportMetric(own.percentile(99), "alone-own-p99-µs")
	b.ReportMetric(ownWatched.percentile(99), "own-p99-µs")
	b.ReportMetric(own.percentile(50), "alone-own-p50-µs")
	b.ReportMetric(ownWatched.percentile(50), "own-p50-µs")
	b.ReportMetric(alone.p99, "alone-p99-µs")
	b.ReportMetric(watched.p99, "p99-µs")
	b.ReportMetric(alone.echo, "alone-echo-p99-µs")
	b.ReportMetric(watched.echo, "echo-p99-µs")
	b.ReportMetric(alone.p50, "alone-p50-µs")
	b.ReportMetric(watched.p50, "p50-µs")
	b.ReportMetric((cpuOf(b, top.PID())-used).Seconds()/seconds*100, "top-%")
	b.ReportMetric((cpu(b, m)-spent).Seconds()/seconds*100, "daemon-%")
	b.ReportMetric((grown-memory)/1024, "rss-KiB")
	b.ReportMetric(0, "ns/op") // says nothing
}

// times is how often the daemon took how long for a request: of each of the metric's buckets the upper end in microseconds, and the count
// of those up to there.
type times []struct{ upTo, count float64 }

// took is how long the daemon says that it took for requests about memory so far.
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

// since leaves those after an earlier moment.
func (t times) since(earlier times) times {
	for i := range t {
		t[i].count -= earlier[i].count
	}
	return t
}

// percentile is spread evenly over its bucket, as histogram_quantile does it.
func (t times) percentile(percent float64) float64 {
	want := t[len(t)-1].count * percent / 100
	i := slices.IndexFunc(t, func(bucket struct{ upTo, count float64 }) bool { return bucket.count >= want })
	if i == 0 {
		return t[0].upTo * want / t[0].count
	}
	return t[i-1].upTo + (t[i].upTo-t[i-1].upTo)*(want-t[i-1].count)/(t[i].count-t[i-1].count)
}

// request is what a request took, and an echo beside it.
type request struct{ p50, p99, echo float64 } // µs

// asked asks for about ten seconds, in batches with pauses, so that it does not keep a processor by itself.
func asked(b *testing.B, p *process) (worst request) {
	b.Helper()
	const batches = 20
	for range batches {
		var r [6]float64
		if _, err := fmt.Sscan(p.ask(b, "500"), &r[0], &r[1], &r[2], &r[3], &r[4], &r[5]); err != nil {
			b.Fatal(err)
		}
		worst.p50 += r[0] / 1000 / batches
		worst.p99 += r[1] / 1000 / batches
		worst.echo += r[4] / 1000 / batches
		time.Sleep(500 * time.Millisecond)
	}
	return worst
}

// watch has everybody look until the benchmark ends.
func watch(b *testing.B, m *rig.Machine) {
	b.Helper()
	files := []string{"leases", "leases.json", "queue", "holders", "budgets", "stats", "devices/0/memory.current", "devices/1/memory.pressure", "devices/0/leases"}
	folders, err := os.ReadDir(filepath.Join(m.Mount, "processes"))
	if err != nil {
		b.Fatal(err)
	}
	for len(files) < 100 {
		files = append(files, "processes/"+folders[len(files)%len(folders)].Name()+"/memory.current")
	}
	for i, file := range files {
		every(b, time.Duration(i)*10*time.Millisecond, func() error {
			_, err := os.ReadFile(filepath.Join(m.Mount, file))
			return err
		})
	}
	url := page(b, m)
	every(b, 0, func() error { return fetch(url + "metrics") })
	if *inBrowser {
		browse(b, url)
	} else {
		follow(b, url+"events")
	}
}

// browse has the page shown by a browser: Debian's chromium, without a window.
func browse(b *testing.B, url string) {
	b.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.UserDataDir(b.TempDir()), chromedp.Env("HOME="+b.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	b.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // its folder goes after it
	rig.Eventually(b, "the browser shows the leases", func() bool {
		text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
		return err == nil && strings.Contains(text, "crowd")
	})
}

// every does something once a second until the benchmark ends.
func every(b *testing.B, after time.Duration, f func() error) {
	b.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	b.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		time.Sleep(after)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			if err := f(); err != nil {
				b.Error(err)
				return
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
}

// page is where the page is served, once it is.
func page(b *testing.B, m *rig.Machine) (url string) {
	b.Helper()
	served := regexp.MustCompile(`the page is served" listen=(\S+)`)
	rig.Eventually(b, "the page is served", func() bool {
		found := served.FindStringSubmatch(m.Log())
		if found != nil {
			url = "http://" + found[1] + "/"
		}
		return found != nil && fetch(url+"state") == nil
	})
	return url
}

func fetch(url string) error {
	answer, err := http.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err = io.Copy(io.Discard, answer.Body); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return err
}

// follow reads what is sent, as a browser that shows the page does.
func follow(b *testing.B, url string) {
	b.Helper()
	answer, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	read := make(chan struct{})
	b.Cleanup(func() { answer.Body.Close(); <-read })
	go func() {
		defer close(read)
		for lines := bufio.NewReader(answer.Body); err == nil; {
			_, err = lines.ReadSlice('\n')
			if err == bufio.ErrBufferFull {
				err = nil
			}
		}
	}()
}
