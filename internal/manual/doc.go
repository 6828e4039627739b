// Package manual writes manual pages and shell completions. There is a page for each command, and
// completions for bash, zsh and fish. The main type is Book. All text comes from the commands
// themselves, so that no page contradicts --help. Pages on files come from the documents in docs/.
//
// During the build each binary writes its own pages (target share of the Makefile). Nothing of this
// package runs on a user's machine. It is used by one goroutine, and shows nothing on a terminal.
package manual
