package main

// This file starts the program. doc.go describes the command, and root.go runs the command line.

import "os"

func main() {
	os.Exit(new(app).run(os.Args[1:]))
}
