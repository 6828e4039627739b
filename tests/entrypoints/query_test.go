package entrypoints

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what a program under a budget sees when it asks CUDA or NVML for memory, processes and
// utilization: its own budget and the processes that share it.

// tells checks the memory figures of the first device in every API that reports them.
func tells(t *testing.T, p *rig.Program, free, total uint64) {
	t.Helper()
	p.Want("info", fmt.Sprintf("ok %d %d", free, total))
	p.Want("total 0", fmt.Sprintf("ok %d", total))
	p.Want("nvmlmemory 0", fmt.Sprintf("ok %d %d %d", free, total-free, total))
	p.Want("nvmlmemory2 0", fmt.Sprintf("ok %d %d %d 0", free, total-free, total))
}

// kinds are NVML's lists of processes, in the order of `simcuda set nvml-list`.
var kinds = []string{"compute", "graphics", "mps"}

// sees checks which processes a program is shown on its first device, in every
// version of the call and with every buffer size: " PID:BYTES" for each.
func sees(t *testing.T, p *rig.Program, list string) {
	t.Helper()
	seesKind(t, p, "compute", list)
}

// seesKind checks the list of one kind of process; the lists of other kinds must be empty.
func seesKind(t *testing.T, p *rig.Program, kind, list string) {
	t.Helper()
	n := strings.Count(list, ":")
	answer := fmt.Sprintf("ok %d%s", n, list)
	for version := range 4 { // version 0 is the list of details
		q := fmt.Sprint("nvmlprocesses ", kind, " ", version, " ")
		for room := range n {
			p.Want(fmt.Sprint(q, room), "err 7")
		}
		p.Want(fmt.Sprint(q, n), answer)
		p.Want(q+"100", answer)
		for _, other := range kinds {
			if other != kind {
				p.Want(fmt.Sprint("nvmlprocesses ", other, " ", version, " 100"), "ok 0")
			}
		}
	}
}

// TestQueriesAgree: every API reports the program's budget as its total memory, and shows nothing of
// other programs.
func TestQueriesAgree(t *testing.T) {
	const limit = 100 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		tells(t, p, limit, limit)
		sees(t, p, fmt.Sprintf(" %d:0", pid))
		p.Want("alloc a 4M", "ok")
		p.Want("create b 2M", "ok")
		tells(t, p, limit-6*mib, limit)
		sees(t, p, fmt.Sprintf(" %d:%d", pid, 6*mib))
		other := m.Interact(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym")))
		other.Want("alloc a 7G", "ok")
		tells(t, p, limit-6*mib, limit)
		sees(t, p, fmt.Sprintf(" %d:%d", pid, 6*mib))
		other.End()
		p.Want("free a", "ok")
		p.Want("releasemem b", "ok")
		tells(t, p, limit, limit)
		p.Want("nvmlmemory 1", fmt.Sprintf("ok %d 0 %d", uint64(limit), uint64(limit)))
	})
}

// TestQueriesFollow: free memory is memory that can be allocated. It follows other programs, and changes of the process
// itself show at once, in each API.
func TestQueriesFollow(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"info", "nvmlmemory", "nvmlmemory2"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			p := start(m, "dlsym", 4<<30)
			p.Ask(first)
			tells(t, p, 4<<30, 4<<30)
			other := start(m, "dlsym", 8<<30)
			other.Want("alloc a 6G", "ok")
			comesToTell(t, p, 2<<30, 4<<30)
			p.Want("alloc a 1G", "ok")
			tells(t, p, 1<<30, 4<<30)
			other.Want("free a", "ok") // leaves it as idle credit
			comesToTell(t, p, 3<<30, 4<<30)
			p.Want("free a", "ok")
			tells(t, p, 4<<30, 4<<30)
			stranger := m.Interact(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym")))
			stranger.Want("alloc a 7G", "ok")
			comesToTell(t, p, 1<<30, 4<<30)
			p.Want(fmt.Sprint("alloc a ", 1<<30), "ok")
			p.Want("alloc b 1", errOutOfMemory)
			tells(t, p, 0, 4<<30)
		})
	}
}

// comesToTell waits until the figures show what other programs have done.
func comesToTell(t *testing.T, p *rig.Program, free, total uint64) {
	t.Helper()
	want := fmt.Sprintf("ok %d %d", free, total)
	rig.Eventually(t, fmt.Sprintf("the program is told of %d free bytes, not of those of %q", free, p.Ask("info")),
		func() bool { return p.Ask("info") == want })
	tells(t, p, free, total)
}

// TestQueriesOfWhatIsReserved: reserved memory stays free for its owner, whatever other programs do.
func TestQueriesOfWhatIsReserved(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"0\"\n"})
	p := m.Interact(m.Gpuarb("run", "--memory", "4G", "--min", "4G", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	tells(t, p, 4<<30, 4<<30)
	other, watcher := start(m, "dlsym", 8<<30), start(m, "dlsym", 8<<30)
	for range 3 {
		other.Want("alloc a 4G", "ok")
		comesToTell(t, watcher, 0, 8<<30)
		tells(t, p, 4<<30, 4<<30)
		other.Want("free a", "ok")
		comesToTell(t, watcher, 4<<30, 8<<30)
		tells(t, p, 4<<30, 4<<30)
	}
}

// TestQueriesOfManyThreads: several threads allocate and free while one queries. When they are done, the figures are right to the byte.
func TestQueriesOfManyThreads(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	p := start(m, "dlsym", 1<<30)
	p.Want("infothreads 4 200 100000", "ok 200") // mostly from credit
	p.Want("infothreads 3 50 20000000", "ok 50") // each needs the daemon
	p.Want("stream s", "ok")
	tells(t, p, 1<<30, 1<<30)
}

// TestQueriesOfStreams: the free memory is smaller by stream_reserve as soon as the program has made a stream.
func TestQueriesOfStreams(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Config: "schema_version = 1\n[defaults]\nstream_reserve = \"8MiB\"\n"})
	p := start(m, "dlsym", 100*mib)
	tells(t, p, 100*mib, 100*mib)
	p.Want("stream s", "ok")
	tells(t, p, 92*mib, 100*mib)
	p.Want("streamdestroy s", "ok")
	tells(t, p, 100*mib, 100*mib)
}

// TestQueriesOfSeveralDevices: each device has figures of its own.
func TestQueriesOfSeveralDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Devices: "8G,8G"})
	p := start(m, "dlsym", 100*mib)
	q := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY=200M"), rig.Build(t, "programs/cudaprog-dlsym"), "--device", "1"))
	p.Want("alloc a 10M", "ok")
	q.Want("alloc a 30M", "ok")
	for _, c := range []struct {
		p      *rig.Program
		device int
		free   uint64
		total  uint64
	}{{p, 0, 90 * mib, 100 * mib}, {p, 1, 100 * mib, 100 * mib}, {q, 0, 200 * mib, 200 * mib}, {q, 1, 170 * mib, 200 * mib}} {
		c.p.Want(fmt.Sprint("nvmlmemory ", c.device), fmt.Sprintf("ok %d %d %d", c.free, c.total-c.free, c.total))
	}
	p.Want("info", fmt.Sprintf("ok %d %d", uint64(90*mib), uint64(100*mib)))
	q.Want("info", fmt.Sprintf("ok %d %d", uint64(170*mib), uint64(200*mib)))
}

// TestQueriesAfterTheDaemon: while no daemon runs, only the granted credit is free. With the next daemon the figures are as before.
func TestQueriesAfterTheDaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	p := m.Interact(m.Gpuarb("run", "--memory", "100M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 10M", "ok")
	p.Want("alloc b 20M", "ok")
	tells(t, p, 70*mib, 100*mib)
	m.Kill()
	p.Want("alloc big 60M", errOutOfMemory) // the library looked for a daemon and found none
	p.Want("free b", "ok")
	var free, total uint64
	if _, err := fmt.Sscanf(p.Ask("info"), "ok %d %d", &free, &total); err != nil || free < 20*mib || free > 30*mib || total != 100*mib {
		t.Errorf("without a daemon %d of %d are free: %v", free, total, err)
	}
	p.Want(fmt.Sprint("alloc c ", free), "ok")
	tells(t, p, 0, 100*mib)
	p.Want("alloc d 1", errOutOfMemory)
	p.Want("free c", "ok")
	m.Start()
	comesToTell(t, p, 90*mib, 100*mib)
	exactly(p, 90*mib)
}

// TestQueriesOfTheWholeDevice: without a budget, every API reports the device's memory less what its driver reserves,
// with the same figure.
func TestQueriesOfTheWholeDevice(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_RESERVED=10M", "SIMCUDA_CONTEXT_BYTES=0"}})
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-link")))
	const total = 8<<30 - 10*mib
	p.Want("total 0", fmt.Sprintf("ok %d", uint64(total)))
	var free, of, free2, used2, of2, reserved uint64
	for range 2 {
		if _, err := fmt.Sscanf(p.Ask("info"), "ok %d %d", &free, &of); err != nil || of != total {
			t.Errorf("cuMemGetInfo: %d of %d", free, of)
		}
		tells(t, p, free, total)
		p.Want("alloc a 1M", "ok")
	}
	if _, err := fmt.Sscanf(p.Ask("nvmlmemory2"), "ok %d %d %d %d", &free2, &used2, &of2, &reserved); err != nil || free2+used2+reserved != of2 {
		t.Errorf("NVML's own sum: %d + %d + %d, of %d", free2, used2, reserved, of2)
	}
}

// TestQueriesBeforeTheContext: a query before the context exists does not fix the figure of free memory. The
// context takes memory, and the free memory reported afterwards can be allocated.
func TestQueriesBeforeTheContext(t *testing.T) {
	t.Parallel()
	const context = 64 * mib
	m := rig.New(t, rig.Options{NoMount: true, Devices: "8G", Sim: []string{fmt.Sprint("SIMCUDA_CONTEXT_BYTES=", context)},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"64MiB\"\n"})
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "--context", "none"))
	const total = 8 << 30
	p.Want("total 0", fmt.Sprintf("ok %d", uint64(total)))
	p.Want("context c", "ok")
	tells(t, p, total-context, total)
	p.Want(fmt.Sprint("alloc a ", uint64(total-context)), "ok")
	tells(t, p, 0, total)
}

// TestQueriesOfAJob: the processes of a job share its budget and see each other.
func TestQueriesOfAJob(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	file := filepath.Join(m.Dir, "token")
	program := rig.Build(t, "programs/cudaprog-dlsym")
	p := m.Interact(m.Gpuarb("run", "--memory", "100M", "--", "sh", "-c", "echo $GPUARB_JOB >"+file+"; exec "+program))
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := append(m.PreloadEnv(), "GPUARB_JOB="+strings.TrimSpace(string(token)))
	q := m.Interact(m.Command(env, program))
	stranger := start(m, "dlsym", 1<<30)
	p.Want("alloc a 10M", "ok")
	q.Want("alloc a 20M", "ok")
	stranger.Want("alloc a 30M", "ok")
	tells(t, p, 70*mib, 100*mib)
	tells(t, q, 70*mib, 100*mib)
	tells(t, stranger, 1<<30-30*mib, 1<<30)
	// NVML lists processes in the order of the driver's records.
	list := fmt.Sprintf(" %d:%d %d:%d", p.PID(), 10*mib, q.PID(), 20*mib)
	sees(t, p, list)
	sees(t, q, list)
	sees(t, stranger, fmt.Sprintf(" %d:%d", stranger.PID(), 30*mib))
}

// TestQueriesOfUtilization: a program sees the utilization of processes that share its budget only. A program
// without a budget, or one that wants the device's own answers, sees all processes.
func TestQueriesOfUtilization(t *testing.T) {
	everyWay(t, 100*mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		const notFound, tooLittle = "err 6", "err 7"
		program := rig.Build(t, "programs/cudaprog-dlsym")
		stranger := m.Interact(m.Command(m.Env(), program))
		stranger.Want("alloc a 1M", "ok")
		other := m.Interact(m.Command(append(m.Env(), "CUDA_VISIBLE_DEVICES=1"), program))
		keepsBusy(m, p, 0)
		keepsBusy(m, stranger, 0)
		keepsBusy(m, other, 1)
		for _, busy := range []string{"nvmlbusy", "nvmlbusylist"} {
			p.Want(busy+" 60", fmt.Sprintf("ok 1 %d", p.PID()))
			p.Want(busy+" 0", tooLittle)
			other.Want(busy+" 60 1", fmt.Sprintf("ok 1 %d", other.PID()))
			p.Want(busy+" 60 1", notFound)
		}
		bare := m.Interact(m.Command(m.PreloadEnv(), program))
		keepsBusy(m, bare, 0)
		bare.Want("nvmlbusy 60", fmt.Sprintf("ok 3 %d %d %d", p.PID(), stranger.PID(), bare.PID()))
		bare.Want("nvmlbusylist 60", fmt.Sprintf("ok 3 %d %d %d", p.PID(), stranger.PID(), bare.PID()))
		plain := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY=1M", "GPUARB_VIRTUALIZE=0"), program))
		keepsBusy(m, plain, 0)
		for _, busy := range []string{"nvmlbusy", "nvmlbusylist"} {
			plain.Want(busy+" 60", fmt.Sprintf("ok 4 %d %d %d %d", p.PID(), stranger.PID(), bare.PID(), plain.PID()))
		}
	})
}

// keepsBusy makes a program keep a device busy, as NVML reports it.
func keepsBusy(m *rig.Machine, p *rig.Program, device int) {
	m.Sim("busy", fmt.Sprint(p.PID()), fmt.Sprint(device), "40")
}

// TestQueriesOfEveryList: graphics processes and processes of an MPS server are listed like other processes, and the daemon
// counts them, too.
func TestQueriesOfEveryList(t *testing.T) {
	everyWay(t, 100*mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		stranger := m.Interact(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym")))
		p.Want("alloc a 4M", "ok")
		for i, kind := range kinds {
			m.Sim("set", "nvml-list", fmt.Sprint(i))
			seesKind(t, p, kind, fmt.Sprintf(" %d:%d", p.PID(), 4*mib))
			stranger.Want(fmt.Sprint("alloc a", i, " 1G"), "ok")
			rig.Eventually(t, "the daemon counts the program without gpuarb", func() bool {
				return uint64(m.Snapshot().Devices[0].Unmanaged) == uint64(i+1)<<30+64*mib
			})
		}
	})
}

// TestQueriesWithoutABudget: a program without a budget sees every process with the device's figures. So does a program whose
// budget is as large as the memory that the device can grant. With one byte less it sees only processes that share its budget.
func TestQueriesWithoutABudget(t *testing.T) {
	t.Parallel()
	const grantable = 7 << 30
	m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[[device]]\nreserve = \"1GiB\"\n"})
	stranger := m.Interact(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym")))
	stranger.Want("alloc a 1G", "ok")
	bare := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	bare.Want("alloc a 2G", "ok")
	all := fmt.Sprintf(" %d:%d %d:%d", stranger.PID(), 1<<30, bare.PID(), 2<<30)
	sees(t, bare, all)
	for _, c := range []struct {
		limit uint64
		all   bool
	}{{grantable, true}, {grantable - 1, false}} {
		p := start(m, "dlsym", c.limit)
		p.Want("alloc a 4M", "ok")
		list := fmt.Sprintf(" %d:%d", p.PID(), 4*mib)
		if c.all {
			list = all + list
		}
		sees(t, p, list)
		p.End()
	}
}

// TestQueriesNotVirtualized: with budget figures switched off, the answers are the vendor's own, while the budget holds.
func TestQueriesNotVirtualized(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_RESERVED=10M"}})
		env := append(m.PreloadEnv(), "GPUARB_MEMORY=100M", "GPUARB_VIRTUALIZE=0")
		p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-"+way)))
		p.Want("alloc a 90M", "ok")
		p.Want("alloc b 11M", errOutOfMemory)
		asks(t, m, p, 90*mib)
	})
}

// asks checks that the answers are the vendor's own: a context of 64 MiB, and the held bytes.
func asks(t *testing.T, m *rig.Machine, p *rig.Program, held uint64) {
	t.Helper()
	const total = 8 << 30
	used := held + 64*mib
	free := total - 10*mib - used
	p.Want("info", fmt.Sprintf("ok %d %d", free, total-10*mib))
	p.Want("total 0", fmt.Sprintf("ok %d", total-10*mib))
	p.Want("nvmlmemory", fmt.Sprintf("ok %d %d %d", free, total-free, uint64(total)))
	p.Want("nvmlmemory2", fmt.Sprintf("ok %d %d %d %d", free, used, uint64(total), 10*mib))
	sees(t, p, fmt.Sprintf(" %d:%d", p.PID(), used))
}

// TestQueriesDisabled: a disabled library does nothing at all. It has no session, no budget, and no answers of its own.
func TestQueriesDisabled(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_RESERVED=10M"}})
		env := append(m.PreloadEnv(), "GPUARB_MEMORY=1M", "GPUARB_HOST=1", "GPUARB_STREAMS=1", "GPUARB_DISABLE=1")
		p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-"+way)))
		p.Want("alloc a 90M", "ok")
		p.Want("host h 1M", "ok")
		p.Want("streammany s 4", "ok 4")
		asks(t, m, p, 90*mib)
		if s := m.Snapshot(); len(s.Leases) != 0 {
			t.Errorf("leases: %+v", s.Leases)
		}
		// The library has no descriptor and no page.
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v: %v", files, err)
		}
		for _, file := range files {
			if to, _ := os.Readlink(file); strings.HasPrefix(to, "socket:") || strings.Contains(to, "gpuarb-page") {
				t.Errorf("%s is %s", file, to)
			}
		}
		p.Want("free a", "ok")
		p.Want("freehost h", "ok")
		p.Want("destroy first", "ok")
	})
}

// TestQueriesOfTheDaemon: a daemon that is started under the preload bypasses the library when it reads the devices, and does
// not connect to itself.
func TestQueriesOfTheDaemon(t *testing.T) {
	t.Parallel()
	runtime, err := os.MkdirTemp("", "gpuarb-run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtime) })
	m := rig.New(t, rig.Options{NoMount: true, Stopped: true,
		Sim: []string{"LD_PRELOAD=" + rig.Build(t, "libgpuarb.so"), "XDG_RUNTIME_DIR=" + runtime,
			"GPUARB_LOG=stderr"}})
	if err := os.Mkdir(filepath.Join(runtime, "gpuarb"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(m.Socket, filepath.Join(runtime, "gpuarb", "gpuarb.sock")); err != nil {
		t.Fatal(err)
	}
	m.Start()
	p := start(m, "dlsym", 100*mib)
	p.Want("alloc a 10M", "ok")
	stranger := m.Interact(m.Command(append(m.Env(), "LD_PRELOAD="), rig.Build(t, "programs/cudaprog-dlsym")))
	stranger.Want("alloc a 1G", "ok")
	rig.Eventually(t, "the daemon has read the devices", func() bool {
		s := m.Snapshot()
		return uint64(s.Devices[0].Unmanaged) == 1<<30+64*mib && uint64(m.Lease(p.PID(), 0).Overhead) == 64*mib
	})
	for line := range strings.Lines(m.Log()) {
		if strings.HasPrefix(line, "gpuarb") {
			t.Errorf("the library says in the daemon: %s", line)
		}
	}
}
