package processes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that a program stays within its budget if it has no free address space or no daemon: the
// library cannot keep a record, and must refuse. threads_test.go has daemons that stop and continue.

const budget = 64 << 20

// TestNoRoom: a process without free address space is still held to its budget, whether the lack begins before its
// first call or later. Memory that the library cannot record is
// refused.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	m := machine(t)
	program := rig.Build(t, "programs/cudaprog-dlsym")
	none := append(m.Env(), "LD_PRELOAD="+rig.Build(t, "libgpuarb.so"), "GPUARB_SOCKET="+m.Dir+"/none")
	for name, env := range map[string][]string{
		"closed":   slices.Concat(none, []string{"GPUARB_ON_LOSS=closed"}),
		"declared": slices.Concat(none, []string{"GPUARB_ON_LOSS=open", "GPUARB_MEMORY=64M"}),
		"daemon":   append(m.PreloadEnv(), "GPUARB_ON_LOSS=open", "GPUARB_MEMORY=64M"),
		"held to":  append(m.PreloadEnv(), "GPUARB_ON_LOSS=closed", "GPUARB_MEMORY=64M"),
	} {
		for _, room := range []string{"0", "8K", "32K", "64K", "96K", "128K", "256K", "512K", "4M"} {
			for when, story := range map[string]string{
				"at first": "noroom %s; context x; alloc a 32M; alloc b 32M; alloc c 1; alloc d 1G; allocasync e 1G 0; managed f 1G; create g 1G 0",
				"later":    "context x; alloc a 32M; noroom %s; alloc b 32M; many c 100000 1K; alloc d 1G; allocasync e 1G 0; managed f 1G",
			} {
				r := rig.Run(t, m.Command(env, program, "--context", "none", fmt.Sprintf(story, room)))
				if r.Code != 0 || strings.Contains(r.Stdout, "c ok 1") && when == "at first" {
					t.Errorf("%s, %s of room %s: status %d\n%s%s", name, room, when, r.Code, r.Stdout, r.Stderr)
				}
				if took(t, r.Stdout) > budget || name == "closed" && took(t, r.Stdout) > 0 {
					t.Errorf("%s, %s of room %s: it got more than its budget\n%s%s", name, room, when, r.Stdout, r.Stderr)
				}
			}
		}
	}
}

// took returns how many bytes a program of TestNoRoom allocated, by its output.
func took(t *testing.T, out string) int {
	t.Helper()
	sizes := map[string]int{"a": 32 << 20, "b": 32 << 20, "c": 1, "d": 1 << 30, "e": 1 << 30, "f": 1 << 30, "g": 1 << 30}
	sum := 0
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		switch {
		case len(words) > 3 && words[0] == "many":
			count := 0
			if _, err := fmt.Sscan(words[3], &count); err != nil {
				t.Fatal(line)
			}
			sum += count << 10
		case len(words) > 2 && words[2] == "ok":
			sum += sizes[words[1]]
		}
	}
	return sum
}

// TestDeclaredHolds: a limit that a program sets for itself holds to the byte without a
// daemon, and after the daemon has gone.
func TestDeclaredHolds(t *testing.T) {
	t.Parallel()
	for name, declared := range map[string]string{"bytes": "512M", "share": "25%"} { // of 2 GiB
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			m.Kill()
			env := append(m.PreloadEnv(), "GPUARB_MEMORY="+declared, "GPUARB_ON_LOSS=open")
			p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-dlsym")))
			p.Want("alloc a 512M", "ok")
			p.Want("alloc b 1", "err 2")
			p.Want("free a", "ok")
			p.Want("alloc b 1M", "ok")
			p.Want("free b", "ok")
			if got := p.Ask("threads 4 500 300M 7"); !strings.HasPrefix(got, "ok ") {
				t.Errorf("threads: %s", got)
			}
			p.Want("alloc a 512M", "ok")
			p.Want("alloc b 1", "err 2")
			p.End()
		})
	}
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		m := machine(t)
		env := append(m.PreloadEnv(), "GPUARB_MEMORY=64M", "GPUARB_ON_LOSS=open")
		p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-dlsym")))
		p.Want("alloc a 40M", "ok")
		m.Kill()
		p.Want("alloc b 24M", "ok")
		p.Want("alloc c 1", "err 2")
		p.Want("free b", "ok")
		p.Want("alloc b 24M", "ok")
		p.Want("alloc c 1", "err 2")
		p.Want("free a", "ok")
		p.Want("free b", "ok")
		p.Want("alloc a 64M", "ok")
		p.Want("alloc c 1", "err 2")
		m.Start()
		p.Want("free a", "ok")
		rig.Eventually(t, "the daemon has it back", func() bool { return p.Ask("alloc a 1M") == "ok" && m.SimNumber("total", "0") == 1<<20 })
		p.End()
	})
}

// TestThreadOfTheLibrarysOwn: the library's own thread takes part when libc makes all threads of a process change their user.
func TestThreadOfTheLibrarysOwn(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("stream s", "ok")
	p.Want("gate s", "ok")
	p.Want("allocasync a 1M s", "ok")
	p.Want("freeasync a s", "ok")
	p.Want("setuid", "ok")
	p.Want("open", "ok")
	p.Want("sync s", "ok")
	p.End()
}
