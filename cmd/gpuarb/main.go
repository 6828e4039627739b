package main

import "os"

func main() {
	os.Exit(newApp().run(os.Args[1:]))
}
