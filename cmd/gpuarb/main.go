package main

import "os"

func main() {
	os.Exit(new(app).run(os.Args[1:]))
}
