package daemon

// This file asks CUDA for the memory of devices for which NVML does not report it, in a process without privileges.
// scan.go calls it.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

const (
	// probePatience limits the probe: CUDA takes seconds to answer if the driver must start.
	probePatience = 20 * time.Second
	// maxProbeOutput is how many bytes of the probe's output are kept, because the driver may print many lines of its
	// own.
	maxProbeOutput = 1 << 20
	// unprivileged is the user and group of a probe that root starts (nobody).
	unprivileged = 65534
)

// probeMemory runs a process without privileges that asks CUDA for the total memory of each device. It returns the
// totals by UUID. The process makes no context. It is killed when ctx ends. If it then still sleeps in the driver, it
// is left behind.
func probeMemory(ctx context.Context) (map[ipc.UUID]uint64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path, err := shim.FindProbe(self, os.Getenv)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-", "memory")
	for _, variable := range os.Environ() { // variables that hide devices must not affect the probe
		if name, _, _ := strings.Cut(variable, "="); name != "CUDA_VISIBLE_DEVICES" && name != "NOTIFY_SOCKET" && name != "LD_PRELOAD" {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "GPUARB_DISABLE=1")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: unprivileged, Gid: unprivileged, Groups: []uint32{}}
	}
	var out head
	cmd.Stdout = &out
	runtime.LockOSThread() // the kernel kills the process when the thread that started it ends (Pdeathsig)
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := background(cmd.Wait)
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("%s: no answer after %v", path, probePatience)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return totalsOf(out.kept)
}

// head is a writer that keeps the first maxProbeOutput bytes and drops the rest.
type head struct{ kept []byte }

func (h *head) Write(text []byte) (int, error) {
	h.kept = append(h.kept, text[:min(len(text), maxProbeOutput-len(h.kept))]...)
	return len(text), nil
}

// totalsOf parses the output of the probe: for each device "memory", its UUID as 32 digits and its bytes, separated
// by tabs. It ignores other lines, which the driver may print.
func totalsOf(text []byte) (map[ipc.UUID]uint64, error) {
	totals := map[ipc.UUID]uint64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Split(lines.Text(), "\t")
		if len(words) != 3 || words[0] != "memory" {
			continue
		}
		uuid, err := hex.DecodeString(words[1])
		total, err2 := strconv.ParseUint(words[2], 10, 64)
		if err != nil || err2 != nil || len(uuid) != len(ipc.UUID{}) {
			return nil, fmt.Errorf("the probe printed %q", lines.Text())
		}
		totals[ipc.UUID(uuid)] = total
	}
	return totals, nil
}
