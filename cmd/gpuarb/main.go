package main

import "os"

func main() {
	os.Exit(newApp().run(os.Args[1:]))
}

func newApp() *app {
	executable, err := os.Executable()
	if err != nil {
		executable = "/usr/bin/gpuarb" // no /proc: look where it is installed
	}
	return &app{
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		environ:    os.Environ(),
		getenv:     os.Getenv,
		uid:        os.Getuid(),
		executable: executable,
		width:      terminalWidth,
		watched:    isTerminal(os.Stderr),
	}
}
