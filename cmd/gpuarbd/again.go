package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/gpuarb/gpuarb/ipc"
)

// This file turns a daemon whose memory cannot be trusted any more into a new one, in the same process.

// handedVariable is in the environment of such a daemon: the descriptors of its socket and lock.
const handedVariable = "GPUARBD_HANDED"

// become starts this program anew in this process, and returns only if it cannot.
func become(h ipc.Handed) error {
	env := append(os.Environ(), fmt.Sprintf("%s=%d,%d", handedVariable, h.Socket, h.Lock))
	path, err := os.Executable()
	if err == nil {
		err = syscall.Exec(path, os.Args, env)
	}
	if errors.Is(err, fs.ErrNotExist) { // another package has replaced it
		err = syscall.Exec("/proc/self/exe", os.Args, env)
	}
	return err
}

// handed returns what this process has of the daemon that it was before; nil: it was none.
func handed() *ipc.Handed {
	text, found := os.LookupEnv(handedVariable)
	_ = os.Unsetenv(handedVariable) // it is no child's
	var h ipc.Handed
	if n, err := fmt.Fscanf(strings.NewReader(text), "%d,%d", &h.Socket, &h.Lock); !found || err != nil || n != 2 {
		return nil
	}
	return &h
}
