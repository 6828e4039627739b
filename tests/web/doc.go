// Package web looks at the page as people do: in a browser (Debian's chromium, without a window), served by a
// real daemon for real programs on the simulated driver. It also looks at the process that serves it from outside: whose it
// is, what it may, and when it ends.
package web
