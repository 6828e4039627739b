//go:build full

package web

import (
	"os"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// This file adds to the browser of browser_test.go what only the full tests need: window sizes, pictures, and
// errors that a test expects.

// forgive removes the complaints so far that contain a text, for a test that causes them itself.
func (b *browser) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []string
	for _, said := range b.amiss {
		if !strings.Contains(said, text) {
			rest = append(rest, said)
		}
	}
	b.amiss = rest
}

// screen sets the size of the window and the colour scheme.
func (b *browser) screen(width, height int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		b.t.Fatal(err)
	}
}

// picture writes an image of the whole page into a file.
func (b *browser) picture(path string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(path, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
