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

// This file replaces a daemon whose memory cannot be trusted by a new daemon in the same process.
// daemon/panics.go decides when, and main.go calls this file.

// descriptorsVariable is the environment variable in which the old daemon gives the new daemon the
// descriptors of its socket and its lock.
const descriptorsVariable = "GPUARBD_HANDED"

// execAgain executes this program again in this process, with the same arguments. It returns only
// if that failed.
func execAgain(h ipc.ListenerFDs) error {
	env := append(os.Environ(), fmt.Sprintf("%s=%d,%d", descriptorsVariable, h.Socket, h.Lock))
	path, err := os.Executable()
	if err == nil {
		err = syscall.Exec(path, os.Args, env)
	}
	if errors.Is(err, fs.ErrNotExist) { // another package has replaced the file
		err = syscall.Exec("/proc/self/exe", os.Args, env)
	}
	return err
}

// inheritedDescriptors returns the descriptors that the old daemon in this process left open. It
// returns nil if this process has not been a daemon before.
func inheritedDescriptors() *ipc.ListenerFDs {
	text, found := os.LookupEnv(descriptorsVariable)
	_ = os.Unsetenv(descriptorsVariable) // the children of the daemon must not inherit it
	var h ipc.ListenerFDs
	if n, err := fmt.Fscanf(strings.NewReader(text), "%d,%d", &h.Socket, &h.Lock); !found || err != nil || n != 2 {
		return nil
	}
	return &h
}
