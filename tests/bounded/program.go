package bounded

import (
	"os"
	"syscall"
)

// This file writes programs that a test then executes.

// WriteProgram writes a file that will be executed. It lets no child start meanwhile: a forked child has the
// file open for writing until its exec, and the kernel refuses to execute a file that is open for writing.
func WriteProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755)
}
