package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkWatched is what those who look cost those who ask: a thousand leases, a hundred readers with a file a second each, a
// page that somebody follows, a scrape a second, and `gpuarb top`. A request is for bytes, asked beside an echo of the same size, alone
// and while they look. `top` is what its process takes, `rss` what the daemon's memory has grown by between the first
// round of looking and the last.
func BenchmarkWatched(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices, Stopped: true, Config: "schema_version = 1\n[http]\nlisten = \"127.0.0.1:0\"\n"})
	if err := os.Chmod(m.Dir, 0o755); err != nil { // the page's process is another user's
		b.Fatal(err)
	}
	m.Start()
	crowd(b, m, 1000, 2)
	p := asker(b, m)
	alone := asked(b, p)
	top := m.Terminal(120, 40, `exec "$G" top`)
	top.Await("lease")
	watch(b, m)
	asked(b, p)
	memory, _ := resident(b, m)
	began, used, took := time.Now(), cpuOf(b, top.PID()), cpu(b, m)
	var watched request
	for b.Loop() {
		watched = asked(b, p)
	}
	grown, _ := resident(b, m)
	seconds := time.Since(began).Seconds()
	b.ReportMetric(alone.p99, "alone-p99-µs")
	b.ReportMetric(watched.p99, "p99-µs")
	b.ReportMetric(alone.echo, "alone-echo-p99-µs")
	b.ReportMetric(watched.echo, "echo-p99-µs")
	b.ReportMetric(alone.p50, "alone-p50-µs")
	b.ReportMetric(watched.p50, "p50-µs")
	b.ReportMetric((cpuOf(b, top.PID())-used).Seconds()/seconds*100, "top-%")
	b.ReportMetric((cpu(b, m)-took).Seconds()/seconds*100, "daemon-%")
	b.ReportMetric((grown-memory)/1024, "rss-KiB")
	b.ReportMetric(0, "ns/op") // says nothing
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
	follow(b, url+"events")
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
