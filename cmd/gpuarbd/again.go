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

// This file turns a daemon whose memory cannot be trusted any more into a new one, in the same process. daemon/broken.go decides
// when, and main.go calls it.

// handedVariable names the variable by which the old daemon tells the new one the descriptors of its socket and its lock.
const handedVariable = "GPUARBD_HANDED"

// become executes this program again in this process, with the same arguments. It returns only if that failed.
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

// handed returns the descriptors that this process has from the daemon that it was before; nil: it was not a daemon before.
func handed() *ipc.Handed {
	text, found := os.LookupEnv(handedVariable)
	_ = os.Unsetenv(handedVariable) // not for the daemon's children
	var h ipc.Handed
	if n, err := fmt.Fscanf(strings.NewReader(text), "%d,%d", &h.Socket, &h.Lock); !found || err != nil || n != 2 {
		return nil
	}
	return &h
}
