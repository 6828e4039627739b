package web

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what a reader can choose on the page: the time that charts show, what they stack, the order of
// tables, and the way from a waiting request to its holders. page_test.go has what the page shows by itself.

// program starts a program under gpuarb run that takes its orders from the test.
func (m machine) program(args ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Gpuarb(append(append([]string{"run"}, args...), "--", rig.Build(m.T, "programs/cudaprog-dlsym"))...))
}

// fact returns an expression for a figure in the heading of a device.
func fact(device int, name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#devices article')][%d].querySelectorAll('.facts div').values().find((d) => d.querySelector('dt').innerText === %q)?.querySelector('dd').innerText`, device, name)
}

// column returns an expression for a column of the table of programs.
func column(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#leases td[data-head=%q]')].map((d) => d.innerText).join('|')`, name)
}

// TestFree: the page says what can be granted now, and what is reserved and not used.
func TestFree(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G", NoMount: true})
	b := newBrowser(t)
	b.open(m.url())
	p := m.program("--min", "4G", "--device", "0", "--name", "train")
	p.Want("alloc a 1G", "ok")
	b.says("reserved, not used")
	b.await(`document.querySelector('.legend').innerText.replaceAll(/\s+/g, ' ').includes('reserved, not used 3 GiB')`)
	const left = `'3.88 GiB'` // 8 GiB without the reservation and two contexts of 64 MiB: that of the program, and that of the next one
	b.await(fact(0, "Free") + ` === ` + left)
	p.Want("alloc b 1G", "ok")
	b.await(`document.querySelector('.legend').innerText.replaceAll(/\s+/g, ' ').includes('reserved, not used 2 GiB')`)
	b.await(fact(0, "Free") + ` === ` + left) // what is taken within the reservation takes nothing from others
}

// TestSpans: the charts show an hour, a day or a week, and what was chosen is in the page's address.
func TestSpans(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G", NoMount: true})
	url := m.url()
	b := newBrowser(t)
	b.open(url)
	p := m.program("--device", "0", "--name", "train")
	p.Want("alloc a 3G", "ok")
	b.says("3 GiB used")
	for _, c := range []struct{ span, length string }{{"day", "86400000"}, {"week", "604800000"}} {
		b.await(fmt.Sprintf(`(() => { document.querySelector('input[name=span][value=%s]').click(); return true; })()`, c.span))
		b.says("on average of")
		if text := get(t, url+"history?span="+c.span); !strings.Contains(text, `"span_ms":`+c.length) {
			t.Errorf("/history?span=%s is %.200s", c.span, text)
		}
		b.open(value[string](b, `location.href`)) // as a bookmark would
		b.await(fmt.Sprintf(`document.querySelector('input[name=span][value=%s]').checked`, c.span))
		b.says("on average of")
	}
	if text := get(t, url+"history?span=year"); !strings.Contains(text, "hour, day and week") {
		t.Errorf("of an unknown span the answer is %s", text)
	}
}

// TestColourByUser: the charts can stack users instead of jobs.
func TestColourByUser(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G", NoMount: true})
	b := newBrowser(t)
	b.open(m.url())
	ann, bob := m.OtherUser(61001).Bare("-"), m.OtherUser(61002).Bare("-")
	second := m.OtherUser(61001).Bare("-")
	ann.Want("alloc a 1G", "ok")
	second.Want("alloc a 2G", "ok")
	bob.Want("alloc a 512M", "ok")
	b.await(`document.querySelectorAll('.legend .whose').length === 3`)
	b.await(`(() => { document.querySelector('input[name=by][value=user]').click(); return true; })()`)
	b.await(`document.querySelectorAll('.legend .whose').length === 2`)
	legend := strings.Join(strings.Fields(value[string](b, `document.querySelector('.legend').innerText`)), " ")
	for _, want := range []string{"61001 2 jobs 3 GiB", "61002 1 job 0.5 GiB"} {
		if !strings.Contains(legend, want) {
			t.Errorf("no %q in %s", want, legend)
		}
	}
}

// TestSort: a click on a heading sorts a table, as does the keyboard, and the focus stays while states arrive.
func TestSort(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G", NoMount: true})
	b := newBrowser(t)
	b.open(m.url())
	for i, size := range []string{"1G", "3G", "2G"} {
		m.program("--device", "0", "--name", fmt.Sprint("job", i)).Want("alloc a "+size, "ok")
	}
	b.await(column("Command") + ` === 'job0|job1|job2'`)
	b.do(chromedp.Click(chromedp.CSS(`#leases th:nth-child(5) button`)))
	b.await(column("Used") + ` === '3 GiB|2 GiB|1 GiB'`)
	b.do(chromedp.Focus(chromedp.CSS(`#leases th:nth-child(5) button`)), chromedp.KeyEvent(kb.Enter))
	b.await(column("Used") + ` === '1 GiB|2 GiB|3 GiB'`)
	p := m.program("--device", "0", "--name", "small")
	p.Want("alloc a 128M", "ok")
	b.await(column("Command") + ` === 'small|job0|job2|job1'`)
	b.await(`document.activeElement.matches('#leases th[aria-sort=ascending] button') && document.querySelectorAll('#leases th[aria-sort=none]').length === 12`)
}

// TestWaitingForASlotNamesTheHolderOnce: of ten programs that wait for the one slot of a device, its holder is named once.
func TestWaitingForASlotNamesTheHolderOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G", NoMount: true, Config: config("127.0.0.1:0") + "[defaults]\nslots.max = 1\n"})
	b := newBrowser(t)
	b.open(m.url())
	m.program("--device", "0", "--name", "whale").Want("alloc a 1G", "ok")
	for i := range 10 {
		m.Begin(m.Gpuarb("run", "--device", "0", "--wait=1h", "--name", fmt.Sprint("minnow", i), "--", rig.Build(t, "programs/cudaprog-dlsym")))
	}
	b.await(`document.querySelectorAll('#queue tbody tr:not(.group)').length === 10`)
	if text := value[string](b, `document.getElementById('queue').innerText`); strings.Count(text, "whale") != 1 || strings.Count(text, "1 of 1 slots (slots.max) are taken") != 10 {
		t.Errorf("the holder is named %d times:\n%s", strings.Count(text, "whale"), text)
	}
}

// TestWaitingNamesHoldersOnce: of ten requests that wait for the same device, the holders are named once, with links to
// their rows.
func TestWaitingNamesHoldersOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G", NoMount: true})
	b := newBrowser(t)
	b.open(m.url())
	holder := m.program("--device", "0", "--name", "whale")
	holder.Want("alloc a 7G", "ok")
	for i := range 10 {
		m.Begin(m.Gpuarb("run", "--device", "0", "--min", "3G", "--wait=1h", "--name", fmt.Sprint("minnow", i), "--", "true"))
	}
	b.await(`document.querySelectorAll('#queue tbody tr:not(.group)').length === 10`)
	if n := value[int](b, `document.getElementById('queue').innerText.split('whale').length - 1`); n != 1 {
		t.Errorf("the holder is named %d times:\n%s", n, value[string](b, `document.getElementById('queue').innerText`))
	}
	b.await(`[...document.querySelectorAll('#queue tbody tr:not(.group)')].every((tr) => document.querySelector(tr.querySelector('a').getAttribute('href')).innerText.includes('whale'))`)
	b.do(chromedp.Click(chromedp.CSS(`#queue .holder a`)))
	b.await(`document.querySelector(':target').matches('#leases tr') && document.querySelector(':target').innerText.includes('whale')`)
}
