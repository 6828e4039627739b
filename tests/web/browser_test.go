package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file drives a browser for the tests of the page. machine_test.go has the machine that serves it.

// browser is a browser with one tab. An error in the tab fails the test at its end.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	amiss []string
	asked []string // URLs
}

// starts is the number of attempts to start a browser, because Chromium sometimes dies at once.
const starts = 5

func newBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{t: t}
	for n := 1; ; n++ {
		err := b.start()
		if err == nil {
			break
		}
		if n == starts {
			t.Fatal(err)
		}
		t.Logf("the browser is started again: %v", err)
	}
	t.Cleanup(func() {
		_ = chromedp.Cancel(b.ctx) // ends the browser before its folder is removed
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.amiss {
			t.Errorf("the browser says: %s", text)
		}
	})
	return b
}

// start starts the browser with an empty tab.
func (b *browser) start() error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.UserDataDir(b.t.TempDir()), chromedp.Env("HOME="+b.t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), bounded.Lifetime)
	b.t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	b.t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b.t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		return err
	}
	return chromedp.Do(ctx)
}

// hear records the page's requests, and complaints of the page and the browser.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.amiss = append(b.amiss, told(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.amiss = append(b.amiss, told(e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.amiss = append(b.amiss, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// told formats an event of the browser as text.
func told(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// elsewhere returns the page's requests to hosts other than its own.
func (b *browser) elsewhere(page string) (list []string) {
	home, err := url.Parse(page)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, asked := range b.asked {
		if u, err := url.Parse(asked); err != nil || u.Host != home.Host {
			list = append(list, asked)
		}
	}
	return list
}

// open goes to a page.
func (b *browser) open(url string) { b.t.Helper(); b.do(chromedp.Navigate(url)) }

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%v\nthe page says:\n%s", err, b.text())
	}
}

// text returns the visible text of the page; "": it cannot be read.
func (b *browser) text() string {
	text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	return text
}

// value evaluates a JavaScript expression in the page.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until an expression is true in the page.
func (b *browser) await(expression string) {
	b.t.Helper()
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Logf("the page says:\n%s", b.text())
		}
	})
	rig.Eventually(b.t, expression, func() bool { return value[bool](b, expression) })
}

// says waits until the page has a text that can be read.
func (b *browser) says(text string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}
