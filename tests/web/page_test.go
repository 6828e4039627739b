package web

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the page follows a program's lease and its refusals, and calls no other host.
// look_full_test.go has its looks, and worker_test.go the process that serves it.

// TestPage: the page shows the lease of a program from its start to its end, logs no error, and sends requests only to its own host.
func TestPage(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G,16G", NoMount: true})
	url := m.url()
	b := newBrowser(t)
	b.open(url)
	b.says("No lease yet.")
	p := m.Interact(m.Gpuarb("run", "--memory", "4G", "--min", "2G", "--device", "0", "--name", "train<b>", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 3G", "ok")
	b.says("train<b>")
	b.says("3 GiB used")
	b.await(`document.querySelector('.chart canvas') !== null`)
	if text := get(t, url+"metrics"); !strings.Contains(text, "gpuarb_build_info") {
		t.Errorf("the metrics are %s", text)
	}
	p.CloseStdin()
	b.says("No program has a lease.")
	if list := b.elsewhere(url); len(list) > 0 {
		t.Errorf("the page asks others: %q", list)
	}
}

// TestEventsOnThePage: the page shows a refusal when it happens.
func TestEventsOnThePage(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{NoMount: true})
	b := newBrowser(t)
	b.open(m.url())
	p := m.Interact(m.Gpuarb("run", "--memory", "1G", "--device", "0", "--name", "greedy", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 3G", "err 2")
	b.await(`[...document.querySelectorAll('#events li')].some((e) => e.innerText.includes('greedy') && e.innerText.includes('is refused'))`)
}
