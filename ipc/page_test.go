package ipc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// This file checks the lease page: both sides see each other's writes, its size cannot change, any other file is
// refused, and a fault in the page becomes an error. creditword_test.go has the steps on a credit word.

func newPage(t *testing.T) *LeasePage {
	t.Helper()
	p, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// memfd makes a file with the given size and seals.
func memfd(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestPageIsShared(t *testing.T) {
	checkFDs(t)
	daemon := newPage(t)
	fd, err := unix.FcntlInt(uintptr(daemon.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client, err := OpenPage(fd, daemon.ID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for slot := range uint32(PageSlots) {
		v := uint64(slot + 1)
		daemon.CreditWord(slot).Store(uint64(MakeCreditWord(10*v, 1, FlagNotify)))
		daemon.Low(slot).Store(uint64(MakeCreditWord(10*v, 1, 0)))
		daemon.Limit(slot).Store(100 * v)
		if !client.TakeCredit(slot, v) || client.TakeCredit(slot, 10*v) {
			t.Errorf("slot %d: took the wrong bytes", slot)
		}
		if old := client.GiveCredit(slot, 1); !old.Notify() || old.Credit() != 9*v {
			t.Errorf("slot %d: gave into %v", slot, old)
		}
		client.Pending(slot).Store(1000 * v)
		client.Counts(slot).Store(2000 * v)
		client.Imported(slot).Store(3000 * v)
	}
	for slot := range uint32(PageSlots) { // read after all writes, so that an overlap of fields shows
		v := uint64(slot + 1)
		if got := CreditWord(daemon.CreditWord(slot).Load()); got != MakeCreditWord(9*v+1, 1, FlagNotify) {
			t.Errorf("slot %d: word %v", slot, got)
		}
		if got := CreditWord(daemon.Low(slot).Load()); got != MakeCreditWord(9*v, 1, 0) {
			t.Errorf("slot %d: low %v", slot, got)
		}
		if p, l := daemon.Pending(slot).Load(), client.Limit(slot).Load(); p != 1000*v || l != 100*v {
			t.Errorf("slot %d: pending %d, limit %d", slot, p, l)
		}
		if c, i := daemon.Counts(slot).Load(), daemon.Imported(slot).Load(); c != 2000*v || i != 3000*v {
			t.Errorf("slot %d: counts %d, imported %d", slot, c, i)
		}
	}
	daemon.Ended().Store(1)
	client.Threads().Store(2)
	if e, th := client.Ended().Load(), daemon.Threads().Load(); e != 1 || th != 2 {
		t.Errorf("ended %d, threads %d", e, th)
	}
	want := Page{Magic: PageMagic, Version: PageVersion, Slots: PageSlots, Ended: 1, Threads: 2}
	got := *daemon.page()
	got.Lease = want.Lease
	if got != want {
		t.Errorf("header %+v", got)
	}
}

func TestPageIsSealed(t *testing.T) {
	p := newPage(t)
	for _, size := range []int64{0, PageSize - 1, PageSize + 1} {
		if err := unix.Ftruncate(p.FD(), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("ftruncate to %d: %v", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(p.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("one more seal: %v", err)
	}
	if flags, err := unix.FcntlInt(uintptr(p.FD()), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the page's descriptor outlives exec: %#x, %v", flags, err)
	}
	if name, _ := os.Readlink("/proc/self/fd/" + itoa(p.FD())); !strings.HasPrefix(name, "/memfd:gpuarb-lease") {
		t.Errorf("the page is called %s", name)
	}
}

func TestOpenPageRefuses(t *testing.T) {
	checkFDs(t)
	good := newPage(t)
	mapped := mappedPages(t)
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(PageSize); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]PageID{"another page": newPage(t).ID(), "no name": {}, "another device": {Dev: 1 << 60, Ino: good.ID().Ino}} {
		if p, err := OpenPage(good.FD(), want); err == nil || !strings.Contains(err.Error(), "the file is") {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	for _, c := range []struct {
		name string
		fd   int
		word string
	}{
		{"no descriptor", -1, "fstat"},
		{"an ordinary file", int(file.Fd()), ""},
		{"no seals", memfd(t, PageSize, 0), "seals"},
		{"can shrink", memfd(t, PageSize, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), "seals"},
		{"can grow", memfd(t, PageSize, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL), "seals"},
		{"can be sealed", memfd(t, PageSize, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW), "seals"},
		{"short", memfd(t, PageSize-1, pageSeals), "4095"},
		{"long", memfd(t, PageSize+1, pageSeals), "4097"},
		{"cannot be written", memfd(t, PageSize, pageSeals|unix.F_SEAL_WRITE), "mmap"},
		{"sealed, but no page", memfd(t, PageSize, pageSeals), "magic"},
	} {
		if p, err := ReceivePage(c.fd); err == nil {
			t.Errorf("%s: taken", c.name)
			p.Close()
		} else if !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v does not say %q", c.name, err, c.word)
		}
		if c.fd >= 0 {
			if _, _, err := identify(c.fd); err != nil {
				t.Errorf("%s: the caller's descriptor was closed", c.name)
			}
		}
	}
	if got := mappedPages(t); got != mapped+1 { // newPage made one mapping above
		t.Errorf("%d pages mapped before, %d after", mapped, got)
	}
}

// mappedPages counts the memfds that this process maps.
func mappedPages(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:")
}

func TestGuard(t *testing.T) {
	p := newPage(t)
	if err := p.Guard(func() { p.CreditWord(0).Add(1) }); err != nil {
		t.Errorf("no fault: %v", err)
	}
	if err := unix.Mprotect(p.mem, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	err := p.Guard(func() { p.Limit(3).Load() })
	if !errors.Is(err, ErrPageFault) || !strings.Contains(err.Error(), "memory fault at offset") {
		t.Errorf("a fault gave %v", err)
	}
	if err := unix.Mprotect(p.mem, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	other := newPage(t)
	if err := unix.Mprotect(other.mem, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(){func() { panic("mine") }, func() { p.CreditWord(PageSlots) }, func() { other.CreditWord(0).Load() }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a panic that is no fault of the page was swallowed")
				}
			}()
			_ = p.Guard(f)
		}()
	}
}

// TestHoleInPage: a client can punch a hole into a sealed page. The page then reads as zeros, and the daemon is not
// harmed.
func TestHoleInPage(t *testing.T) {
	p := newPage(t)
	p.CreditWord(0).Store(5)
	if err := unix.Fallocate(p.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, PageSize); err != nil {
		t.Fatal(err)
	}
	var got uint64
	if err := p.Guard(func() { got = p.CreditWord(0).Load() }); err != nil || got != 0 {
		t.Errorf("word %d, %v", got, err)
	}
	if _, err := OpenPage(p.FD(), p.ID()); err == nil || !strings.Contains(err.Error(), "magic") {
		t.Errorf("opened again: %v", err)
	}
}

// TestReadPage: ReadPage returns a page's content, and refuses every other file.
func TestReadPage(t *testing.T) {
	p := newPage(t)
	if page, err := ReadPage(p.FD()); err != nil {
		t.Fatal(err)
	} else if _, ok := page.JobOptions(); ok {
		t.Error("a page that nobody wrote to says something")
	}
	p.Limit(3).Store(77)
	p.SetJobOptions(JobOptions{Memory: NoLimit, Share: 250, Streams: 9, Job: JobWait})
	page, err := ReadPage(p.FD())
	if err != nil {
		t.Fatal(err)
	}
	if g, ok := page.JobOptions(); !ok || g != (JobOptions{Memory: NoLimit, Share: 250, Streams: 9, Job: JobWait}) || page.Lease[3].Limit != 77 {
		t.Errorf("%+v, %v", g, page.Lease[3])
	}
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for name, fd := range map[string]int{"unsealed": memfd(t, PageSize, 0), "short": memfd(t, 64, pageSeals),
		"empty": memfd(t, PageSize, pageSeals), "a pipe": pipe[0], "its other end": pipe[1], "none": -1} {
		if _, err := ReadPage(fd); err == nil {
			t.Errorf("%s: taken for a page", name)
		}
	}
	unix.Close(pipe[0])
	unix.Close(pipe[1])
}
