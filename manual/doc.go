// Package manual writes what goes with a command besides its binary: a manual page for it and for each
// command below it, and what has bash, zsh and fish complete it. All of it comes from the commands themselves, so
// that no page says anything else than --help; pages on files come from the documents in docs/. The build has each binary write its own (Makefile, target share);
// nothing of this runs on a user's machine.
package manual
