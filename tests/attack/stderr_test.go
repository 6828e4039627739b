package attack

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a program under the shim goes on although nothing reads the messages of the library on its
// standard error.

// TestNobodyReadsStandardError: messages of the library neither end nor block a program whose standard error is a pipe
// without a reader, or with one that has stopped reading.
func TestNobodyReadsStandardError(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	for name, spoil := range map[string]func(t *testing.T, read, write *os.File){
		"closed": func(t *testing.T, read, _ *os.File) { check(t, read.Close()) },
		"full":   stuff,
	} {
		t.Run(name, func(t *testing.T) {
			read, write, err := os.Pipe()
			check(t, err)
			defer func() { _, _ = read.Close(), write.Close() }()
			spoil(t, read, write)
			// At each socket the program is warned: at the first its memory is refused, at the second there is no daemon.
			for _, socket := range []string{m.Socket, m.Dir + "/none"} {
				cmd := m.Command(append(m.PreloadEnv(), "GPUARB_SOCKET="+socket), rig.Build(t, "programs/cudaprog-dlsym"), "alloc a 1M; alloc b 2G; free a")
				cmd.Stderr = write
				if err := cmd.Run(); err != nil {
					t.Errorf("socket %s: %v", socket, err)
				}
			}
		})
	}
}

// stuff fills a pipe.
func stuff(t *testing.T, _, write *os.File) {
	t.Helper()
	fd := int(write.Fd())
	check(t, syscall.SetNonblock(fd, true))
	for {
		_, err := syscall.Write(fd, make([]byte, 4096))
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		check(t, err)
	}
	check(t, syscall.SetNonblock(fd, false))
}
