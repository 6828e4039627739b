package main

// This file has the parts of the manual pages that commands do not describe themselves. Package
// manual writes the pages.

import (
	"os"
	"path/filepath"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/manual"
	"github.com/spf13/cobra"
)

// shareCommand returns the command that the build calls (target share of the Makefile). It writes
// the manual pages and completions that are installed.
func (a *app) shareCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "write-share FOLDER DOCS",
		Short:  "write the manual pages and completions below FOLDER; those on files are made of the documents in DOCS",
		Hidden: true,
		Args:   argumentCount(2, 2),
		RunE: func(command *cobra.Command, args []string) error {
			book := manual.Book{Root: command.Root(), Chapter: 1, Date: manual.Date(os.Getenv), Sections: ownSections(), Documents: documents(args[1]),
				See: []string{"gpuarb.toml(5)", "gpuarb-files(5)", "gpuarbd(8)", "nvidia-smi(1)"}}
			return book.Write(args[0])
		},
	}
}

// documents returns the manual pages about files, which are made from documents.
func documents(folder string) []manual.Document {
	return []manual.Document{
		{Name: "gpuarb.toml", Short: "configuration of gpuarbd", Path: filepath.Join(folder, "admin/configuration.md"), See: []string{"gpuarb-config(1)", "gpuarb-files(5)", "gpuarbd(8)"}},
		{Name: "gpuarb-files", Short: "the files that gpuarbd shows its state in", Path: filepath.Join(folder, "reference/gpufs.md"), See: []string{"gpuarb(1)", "gpuarb.toml(5)", "gpuarbd(8)"}},
	}
}

// ownSections returns the sections of gpuarb(1) that are not made from the commands.
func ownSections() []manual.Section {
	return []manual.Section{
		{Title: "EXIT STATUS", Items: []manual.Item{
			{Word: "0", Meaning: "Done."},
			{Word: "1", Meaning: "Not done, and the message says why; or doctor found something wrong, or config diff a difference."},
			{Word: "2", Meaning: "The command line is wrong; nothing was tried."},
			{Word: "69", Meaning: "No daemon answers, or there is no GPU."},
			{Word: "75", Meaning: "Busy, and the command was told not to wait; or the request was cancelled."},
			{Word: "78", Meaning: "The configuration has mistakes; each is printed with file and line."},
			{Word: "125", Meaning: "`suggest` knows no earlier run of the command."},
		}},
		{Title: "ENVIRONMENT", Items: []manual.Item{
			{Word: "GPUARB_SOCKET", Meaning: "The daemon's socket, where `--socket` is not given."},
			{Word: "GPUARB_MEMORY, GPUARB_STREAMS, GPUARB_HOST", Meaning: "Lower the limits of programs that are started with the library."},
			{Word: "GPUARB_LIB", Meaning: "Which libgpuarb.so programs are started with."},
			{Word: "GPUARB_QUIET", Meaning: "The library prints nothing on standard error."},
			{Word: "GPUARB_DISABLE", Meaning: "The library does nothing: the program is not arbitrated, and has no limit."},
			{Word: "COLUMNS", Meaning: "The width of tables on a terminal."},
			{Word: "NO_COLOR", Meaning: "`top` and `events` print no colours."},
		}},
		{Title: "FILES", Items: []manual.Item{
			{Word: config.DefaultPath, Meaning: "The daemon's configuration, with conf.d/*.toml beside it: `gpuarb.toml`(5)."},
			{Word: "/gpu", Meaning: "The daemon's state, as files: `gpuarb-files`(5)."},
			{Word: "/run/gpuarb/gpuarb.sock", Meaning: "The socket of the machine's daemon."},
			{Word: "/run/gpuarb/client", Meaning: "The folder that containers are given: it holds the same socket, and nothing else."},
			{Word: "/run/gpuarb/history.sock", Meaning: "The socket at which the history of jobs is read."},
			{Word: "/var/lib/gpuarb/history", Meaning: "The history of jobs."},
			{Word: "$XDG_RUNTIME_DIR/gpuarb/gpuarb.sock", Meaning: "That of a user's own, which is asked first."},
		}},
	}
}
