// Package web opens the page in a browser (Debian's chromium, without a window), served by a
// real daemon for real programs on the simulated driver. The oracle for the page is what those programs did. Other tests inspect the process
// that serves the page from outside: its user, its privileges, and when it ends.
package web
