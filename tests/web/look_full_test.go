//go:build full

package web

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the page fits wide and narrow windows, can be used by the keyboard, and says so when its
// daemon is gone. page_test.go has what the page shows.

// busyFor is the time in which programs work before the pictures are taken, so that the charts have a history.
var busyFor = flag.Duration("web.busy", 0, "have programs take and free memory for so `long` before the pictures")

// busy runs programs that take and free memory on two devices. One program waits, and one uses a device without gpuarb.
func (m machine) busy() {
	m.T.Helper()
	program := rig.Build(m.T, "programs/cudaprog-dlsym")
	run := func(args ...string) *rig.Program {
		return m.Interact(m.Gpuarb(append(append([]string{"run"}, args...), "--", program)...))
	}
	a := run("--memory", "6G", "--min", "4G", "--device", "0", "--name", "llama-70b finetune")
	b := run("--memory", "8G", "--device", "0", "--name", "whisper")
	c := run("--memory", "4G", "--device", "0")
	d := run("--device", "1", "--name", "a-job-with-a-rather-long-name-that-nobody-would-shorten")
	a.Want("alloc a 2G", "ok")
	b.Want("alloc a 3G", "ok")
	c.Want("alloc a 1G", "ok")
	d.Want("alloc a 700M", "ok")
	for i, began := 0, time.Now(); time.Since(began) < *busyFor; i++ {
		p, size := []*rig.Program{a, b, c, d}[i%4], []string{"1500M", "700M", "2G", "1G", "300M"}[i%5]
		p.Want("alloc x "+size, "ok")
		time.Sleep(9 * time.Second)
		p.Want("free x", "ok")
	}
	a.Want("alloc b 1G", "ok")
	unmanaged := m.Interact(m.Command(m.Env(), program))
	unmanaged.Want("alloc a 1G", "ok")
	for i, of := range [][]string{{"sdxl", "14G"}, {"embed", "5G"}} { // the second would fit, but the first is ahead of it
		m.Begin(m.Gpuarb("run", "--min", of[1], "--device", "0", "--name", of[0], "--", "true"))
		rig.Eventually(m.T, of[0]+" waits", func() bool { return len(m.Snapshot().Queue) == i+1 })
	}
}

// TestFullLooks takes pictures of the page: wide and narrow, light and dark. GPUARB_TEST_PICTURES names
// a folder to keep them in.
func TestFullLooks(t *testing.T) {
	folder := os.Getenv("GPUARB_TEST_PICTURES")
	if folder == "" {
		folder = t.TempDir()
	}
	m := newMachine(t, rig.Options{Devices: "16G,8G", NoMount: true})
	url := m.url()
	b := newBrowser(t)
	b.open(url)
	b.says("No lease yet.")
	b.screen(1440, 900, "light")
	b.picture(filepath.Join(folder, "empty.png"))
	m.busy()
	b.says("sdxl")
	b.says("Unmanaged")
	for _, width := range []int64{360, 1440} {
		for _, scheme := range []string{"light", "dark"} {
			b.screen(width, 900, scheme)
			b.await(fmt.Sprintf(`innerWidth === %d && document.documentElement.scrollWidth <= innerWidth`, width))
			b.await(`[...document.querySelectorAll('.chart')].every((c) => c.querySelector('canvas').clientWidth <= c.clientWidth + 1)`)
			b.picture(filepath.Join(folder, fmt.Sprintf("%s-%d.png", scheme, width)))
		}
	}
}

// TestFullKeyboard: the chart can be read, and its table opened, without a mouse.
func TestFullKeyboard(t *testing.T) {
	m := newMachine(t, rig.Options{Devices: "16G,8G", NoMount: true})
	url := m.url()
	b := newBrowser(t)
	b.open(url)
	m.busy()
	b.says("sdxl")
	b.await(`document.querySelector('.chart').getAttribute('aria-valuetext').includes('whisper 3 GiB')`)
	b.do(chromedp.Focus(chromedp.CSS(".chart")))
	for _, c := range []struct{ key, says string }{
		{kb.Home, "not used"}, {kb.End, "whisper 3 GiB"}, {kb.PageUp, "not used"}, {kb.Escape, "whisper 3 GiB"},
	} {
		b.do(chromedp.KeyEvent(c.key))
		b.await(fmt.Sprintf(`document.activeElement.matches('.chart') && document.activeElement.getAttribute('aria-valuetext').includes(%q)`, c.says))
		if now := value[bool](b, `document.querySelector('.when').innerText.startsWith('now')`); now != (c.key == kb.Escape) {
			t.Errorf("after %q the legend is of now: %t", c.key, now)
		}
	}
	b.do(chromedp.KeyEvent(kb.Tab))
	b.await(`document.activeElement.matches('summary')`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await(`document.querySelector('details[open] td') !== null && document.querySelector('details[open] th[scope=col]').innerText === 'Time'`)
}

// freeAddress returns an address with a free port, for a page that must come back at the same address.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestFullGoneAndBack: when the daemon ends, the page says so and keeps its data, and it continues when the daemon is back.
func TestFullGoneAndBack(t *testing.T) {
	m := newMachine(t, rig.Options{NoMount: true, Config: config(freeAddress(t))})
	b := newBrowser(t)
	b.open(m.url())
	b.says("No lease yet.")
	m.Kill()
	b.await(`document.body.dataset.connection === 'lost'`)
	b.says("The connection is lost; the page tries again. The figures are those of")
	if folder := os.Getenv("GPUARB_TEST_PICTURES"); folder != "" {
		b.picture(filepath.Join(folder, "lost.png"))
	}
	m.Start()
	b.await(`document.body.dataset.connection === 'live' && document.getElementById('banner').hidden`)
	b.forgive("ERR_")
}
