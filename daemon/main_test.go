package daemon

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has the entry point of the test binary, which runs either the tests or the client that daemon_test.go
// starts as a process of its own.

// TestMain runs the tests. In a process with clientVariable it runs a client instead, which a test can kill.
func TestMain(m *testing.M) {
	if socket := os.Getenv(clientVariable); socket != "" {
		if err := beClient(socket, os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

// run runs the tests, with a temporary folder for the files of their daemons that survive a reboot (STATE_DIRECTORY).
func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "gpuarb-test-")
	if err == nil {
		err = os.Setenv("STATE_DIRECTORY", folder)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	return m.Run()
}

const clientVariable = "GPUARB_DAEMON_TEST_SOCKET"

// beClient takes bytes on devices (pairs of a UUID in digits and a number) and prints "ready". It answers each line
// "alloc N BYTES" with "ok" or the reason of the refusal.
func beClient(socket string, args []string) error {
	c, err := ipc.Dial(context.Background(), socket)
	if err != nil {
		return err
	}
	s, err := c.HelloShim(context.Background(), ipc.HelloRequest{Kind: ipc.KindShim, Memory: ipc.NoLimit, StreamReserve: ipc.NoLimit})
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(args); i += 2 {
		var uuid ipc.UUID
		if _, err := hex.Decode(uuid[:], []byte(args[i])); err != nil {
			return err
		}
		lease, err := c.Attach(context.Background(), uuid)
		if err != nil {
			return err
		}
		bytes, err := strconv.ParseUint(args[i+1], 10, 64)
		if err != nil {
			return err
		}
		if err := takeBytes(s, lease.Slot, bytes); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var slot uint32
		var bytes uint64
		if _, err := fmt.Sscanf(lines.Text(), "alloc %d %d", &slot, &bytes); err != nil {
			return err
		}
		if err := takeBytes(s, slot, bytes); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("ok")
	}
	return nil
}

// takeBytes asks for bytes; for 0 bytes it sends no request.
func takeBytes(s *ipc.ShimSession, slot uint32, bytes uint64) error {
	if bytes == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), bounded.Patience)
	defer cancel()
	_, err := s.Main.Alloc(ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes})
	return err
}
