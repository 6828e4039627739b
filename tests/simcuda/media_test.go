package simcuda

import (
	"os"
	"testing"
)

// This file runs ffmpeg and Numba unmodified on the simulated driver: their results must be as without a
// device, or as computed in the script.

// Unmodified programs work: frames that were copied to the device and back are unchanged.
func TestFfmpeg(t *testing.T) {
	frames := func(m *machine, filter string) string {
		out, err := m.command("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i",
			"testsrc2=s=640x360", "-frames:v", "10", "-filter_complex", filter, "-f", "framemd5",
			"-").Output()
		if err != nil {
			t.Fatalf("%s: %v", filter, err)
		}
		return string(out)
	}
	m := newMachine(t)
	want := frames(m, "format=nv12")
	if m.sim("peak", "0") != "0" {
		t.Error("the plain run used the device")
	}
	if got := frames(m, "format=nv12,hwupload_cuda,hwdownload,format=nv12"); got != want {
		t.Errorf("through the device:\n%swithout it:\n%s", got, want)
	}
	if got := m.sim("peak", "0"); got != "552960" {
		t.Errorf("one frame of nv12 took %s bytes", got)
	}
	m.wantTotal(0)
}

const numbaProgram = `
from numba import cuda
import numpy as np
a = np.arange(100000, dtype=np.float32)
d = cuda.to_device(a)
s = cuda.stream()
e = cuda.to_device(a * 2, stream=s)
s.synchronize()
assert (d.copy_to_host() == a).all() and (e.copy_to_host() == a * 2).all()
assert cuda.current_context().get_memory_info().total == 8 << 30
try:
    cuda.device_array(9 << 30, dtype=np.uint8)
    raise SystemExit("9 GiB fit on a device of 8")
except cuda.cudadrv.driver.CudaAPIError as e:
    assert "OUT_OF_MEMORY" in str(e), e
`

func TestNumba(t *testing.T) {
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "/usr/bin/python3"
	}
	m := newMachine(t)
	if err := m.command(python, "-c", numbaProgram).Run(); err != nil {
		t.Error(err)
	}
	m.wantTotal(0)
}
