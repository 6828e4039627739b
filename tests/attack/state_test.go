package attack

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the daemon starts whatever happened to its state file or its disk, and takes the counts from
// its clients' reports if the file is unusable. The oracle is the driver's count. seen_test.go has the limits of the
// clients.

// damage are the ways in which the state file can be damaged between two daemons.
var damage = map[string]func(t *testing.T, r *rand.Rand, path string){
	"removed": func(t *testing.T, _ *rand.Rand, path string) { check(t, os.Remove(path)) },
	"empty":   func(t *testing.T, _ *rand.Rand, path string) { check(t, os.Truncate(path, 0)) },
	"cut":     func(t *testing.T, _ *rand.Rand, path string) { check(t, os.Truncate(path, 5000)) },
	"of another boot": func(t *testing.T, _ *rand.Rand, path string) {
		overwriteFile(t, path, 40, []byte("another boot's !"))
	},
	"of another version": func(t *testing.T, _ *rand.Rand, path string) { overwriteFile(t, path, 8, []byte{99}) },
	"a header of rubbish": func(t *testing.T, r *rand.Rand, path string) {
		overwriteFile(t, path, 0, noise(r, 4096))
	},
	"counts of rubbish": func(t *testing.T, _ *rand.Rand, path string) {
		overwriteFile(t, path, 56, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	},
	"records of rubbish": func(t *testing.T, r *rand.Rand, path string) {
		info, err := os.Stat(path)
		check(t, err)
		overwriteFile(t, path, 56, []byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0}) // 256 records in each table
		for range 2000 {
			at := 4096 + r.Int64N(info.Size()-4200)
			overwriteFile(t, path, at, []byte{1, 0, 0, 0})
			overwriteFile(t, path, at+4, noise(r, 90))
		}
	},
	"tokens flipped": func(t *testing.T, _ *rand.Rand, path string) {
		eachSession(t, path, func(at int64) { overwriteFile(t, path, at+16, fmt.Appendf(nil, "%016d", at)) })
	},
	"tokens and pages flipped": func(t *testing.T, _ *rand.Rand, path string) {
		eachSession(t, path, func(at int64) {
			overwriteFile(t, path, at+16, fmt.Appendf(nil, "%016d", at))
			overwriteFile(t, path, at+56, []byte{1, 2, 3, 4, 5, 6, 7, 8})
		})
	},
	"bits flipped in records": func(t *testing.T, r *rand.Rand, path string) {
		text, err := os.ReadFile(path)
		check(t, err)
		for i := 4096; i < len(text); i++ {
			if text[i] != 0 && r.IntN(4) == 0 {
				overwriteFile(t, path, int64(i), []byte{text[i] ^ 1<<r.IntN(8)})
			}
		}
	},
}

// eachSession calls f with the offset of each live session's record, by the layout in
// internal/statefile/records.go.
func eachSession(t *testing.T, path string, f func(at int64)) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	at := int(binary.LittleEndian.Uint32(text[12:])) + 4096*int(binary.LittleEndian.Uint32(text[16:]))
	size := int(binary.LittleEndian.Uint32(text[20:]))
	for range 4096 {
		if binary.LittleEndian.Uint32(text[at:]) != 0 {
			f(int64(at))
		}
		at += size
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func overwriteFile(t *testing.T, path string, at int64, text []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	check(t, err)
	defer f.Close()
	_, err = f.WriteAt(text, at)
	check(t, err)
}

// TestDamagedState: the daemon starts with any damaged state file, and its
// clients report what they hold.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for name, harm := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := random(t)
			m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			p, under := cudaprog(m), m.Interact(m.Gpuarb("run", "--memory", "500M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
			say(t, p, "alloc a 100M", "ok")
			say(t, under, "alloc a 200M", "ok")
			for range 2 * *scale {
				m.Kill()
				harm(t, r, m.Socket+".state")
				m.Start()
				for _, q := range []*rig.Program{p, under} {
					say(t, q, "alloc b 1M", "ok")
					say(t, q, "free b", "ok")
				}
				settle(t, m, []*rig.Program{p, under})
			}
			p.End()
			under.End()
			m.AllGone()
		})
	}
}

// TestReservationBeyondEveryDevice: the record of a job is changed to reserve more than any device has.
// The job goes on without a reservation.
func TestReservationBeyondEveryDevice(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := m.Interact(m.Gpuarb("run", "--memory", "500M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	say(t, p, "alloc a 200M", "ok")
	m.Kill()
	const ofMin = 56 // offset in the first job's record
	overwriteFile(t, m.Socket+".state", 4096+ofMin+7, []byte{0x7f})
	m.Start()
	say(t, p, "alloc b 1M", "ok")
	s := m.Snapshot()
	if on := s.Jobs[0].Devices[0]; on.Max != 500<<20 || on.Reserved != 0 || s.Devices[0].Reserved != 0 {
		t.Errorf("%+v; %d reserved on the device", on, s.Devices[0].Reserved)
	}
	p.End()
	m.AllGone()
}

// TestOneDaemonForAState: a second daemon starts after the socket and the lock of a running daemon were removed.
// It leaves the state of the running daemon unchanged, and names that daemon in its error.
func TestOneDaemonForAState(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	p := cudaprog(m)
	say(t, p, "alloc a 100M", "ok")
	m.Halt(m.DaemonPID()) // else it would make its socket again
	check(t, os.Remove(m.Socket))
	check(t, os.Remove(m.Socket+".lock"))
	r := rig.Run(t, m.Command(append(m.Env(), rig.NoProcessor...), gpuarbd(t), "--socket", m.Socket, "--mount", "none"))
	if want := fmt.Sprintf("%s.state is in use by another daemon, pid %d: stop that one first", m.Socket, m.DaemonPID()); r.Code != 1 || !strings.Contains(r.Stderr, want) {
		t.Errorf("exit status %d: %s", r.Code, r.Stderr)
	}
	check(t, unix.Kill(m.DaemonPID(), unix.SIGCONT))
	say(t, p, "alloc b 100M", "ok")
	m.Kill()
	m.Start()
	say(t, p, "alloc c 100M", "ok")
	settle(t, m, []*rig.Program{p})
}

// smallDisk mounts a tmpfs of size bytes on a new folder for a machine's runtime files, and returns the folder.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpuarb-disk-")
	check(t, err)
	check(t, unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)))
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = os.Remove(dir)
	})
	return dir
}

// fill fills a filesystem to the last byte.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	check(t, err)
	defer f.Close()
	for block := make([]byte, 4096); ; {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// TestFullDisk: the daemon admits requests although its runtime directory is full, and the log says that the state is not kept. If the disk
// fills while the daemon runs, no state is lost, because the state file was allocated in full.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for when, size := range map[string]int{"before the start": 1 << 20, "while it runs": 64 << 20} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			dir := smallDisk(t, size)
			m := machine(t, rig.Options{Devices: "8G", NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			m.Socket = filepath.Join(dir, "gpuarb.sock")
			const lost = "the state cannot be kept"
			if when == "before the start" {
				fill(t, dir)
				m.Start()
				m.AwaitLog(lost)
			} else {
				m.Start()
				fill(t, dir)
			}
			var all []*rig.Program
			for range 40 {
				p := cudaprog(m)
				say(t, p, "alloc a 10M", "ok")
				all = append(all, p)
			}
			agree(t, m)
			m.Kill()
			m.Start()
			for _, p := range all {
				say(t, p, "alloc b 10M", "ok")
			}
			settle(t, m, all)
			for _, p := range all {
				p.End()
			}
			m.AllGone()
			if when != "before the start" && strings.Contains(m.Log(), lost) {
				t.Error("the state was lost, though there was room when the daemon started")
			}
		})
	}
}

// TestStateOfAnotherSizeIsSetAside checks that a state file with a wrong size is renamed, and that the log names the new name.
func TestStateOfAnotherSizeIsSetAside(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	m.Kill()
	path := m.Socket + ".state"
	info, err := os.Stat(path)
	check(t, err)
	check(t, os.Truncate(path, info.Size()+4096))
	m.Start()
	m.AwaitLog("set_aside_as=" + path + ".damaged")
	aside, err := os.Stat(path + ".damaged")
	check(t, err)
	if !os.SameFile(aside, info) || aside.Size() != info.Size()+4096 {
		t.Errorf("%s is not what was there", aside.Name())
	}
}
