package statefile

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An annex is a further file, for what version 3 of the state file has no room for. It is a file of its own so that the
// layout of the first one stays what the daemons before this one read: they begin every other anew, and a return to one of
// them would lift the budgets of what runs. One has the threads of leases, one pressures, and one the paths of cgroups.
//
// A daemon that does not know of an annex leaves it as it is. So no row of it is believed without what it belongs to, and
// what it says in sum has to agree with that.
const (
	// MaxThreads bounds the threads of all leases together, beyond those in the leases' records.
	MaxThreads = 1 << 18
	// MaxPressures bounds the devices, jobs and users at which somebody ever waited for bytes.
	MaxPressures = MaxJobs + MaxSessions + 1<<13
)

// annexKind is what an annex holds. Its magic is as it lies in memory.
type annexKind struct {
	suffix  string // of its name, behind the state file's
	magic   uint64
	version uint32
	rows    int
	rowSize uintptr
}

var (
	threadAnnex   = annexKind{".annex", 0x58454e4e41424741, 2, MaxThreads, unsafe.Sizeof(Thread{})}      // AGBANNEX
	pressureAnnex = annexKind{".pressure", 0x53534552504247, 1, MaxPressures, unsafe.Sizeof(Pressure{})} // GBPRESS
	cgroupAnnex   = annexKind{".cgroups", 0x53505247434247, 1, MaxCgroups, unsafe.Sizeof(Cgroup{})}      // GBCGRPS
)

// annexHeader is the first page of an annex.
type annexHeader struct {
	Magic   uint64
	Version uint32
	RowSize uint32
	BootID  [16]byte

	High  uint32 // rows from here on were never used
	Pad   uint32
	Alive int64 // when the daemon last said that it lives, in nanoseconds of the boot's own clock; 0: not known
}

// Thread is a thread of a lease, where the lease's record has no room for another Maker.
// OpenedAt is the lease's: a row with another is a lease's that had the index before.
type Thread struct {
	Live     uint32
	Lease    uint32 // index of its record
	OpenedAt int64
	Maker    Maker
}

func (k *annexKind) size() uintptr { return headerSize + uintptr(k.rows)*k.rowSize }

// ours is the header of an annex that holds nothing.
func (k *annexKind) ours() annexHeader {
	return annexHeader{Magic: k.magic, Version: k.version, RowSize: uint32(k.rowSize), BootID: bootID()}
}

// openAnnexes maps the annexes of the state file at path. It empties an annex of another boot, and all of them if the state file is
// fresh. It sets an annex aside that this version cannot read, and makes a new one. If an annex cannot be opened, its content is in
// memory alone and does not outlive the daemon, as Volatile says.
func (f *File) openAnnexes(path string, fresh bool) error {
	if err := f.eachAnnex(func(k *annexKind) (*backing, error) {
		back, err := k.open(path+k.suffix, fresh)
		var strange *strange
		if errors.As(err, &strange) {
			aside, failed := setAside(path+k.suffix, strange.kind)
			if err = failed; err == nil {
				f.aside = append(f.aside, aside)
				back, err = k.open(path+k.suffix, fresh)
			}
		}
		if err != nil {
			back, err = anonymous(k.size(), err)
		}
		return back, err
	}); err != nil {
		return err
	}
	f.Threads.Each(func(i int, t *Thread) {
		if t.Lease >= *f.Leases.high || f.Leases.rows[t.Lease].Live != 1 || f.Leases.rows[t.Lease].OpenedAt != t.OpenedAt {
			f.Threads.Free(i)
		}
	})
	return nil
}

func (k *annexKind) open(path string, fresh bool) (*backing, error) {
	back, _, err := openFile(path, k.size(), func(fd int, st *unix.Stat_t) (bool, error) {
		anew, err := k.examine(fd, path, st)
		return fresh || anew, err
	})
	return back, err
}

// examine checks an annex that was opened. It is fresh if it holds nothing that is true any more: it is empty, or of another
// boot. The error is a *strange for a file of another version, another size, or without our magic number.
func (k *annexKind) examine(fd int, path string, st *unix.Stat_t) (fresh bool, err error) {
	if !oursAlone(st) {
		return false, fmt.Errorf("%s: must be a file of ours alone (owner %d, mode 600); remove it", path, os.Geteuid())
	}
	h, _, err := readHeader[annexHeader](fd, path)
	if err != nil {
		return false, err
	}
	whole, want := st.Size == int64(k.size()), k.ours()
	want.High, want.Alive = h.High, h.Alive
	switch {
	case h == (annexHeader{}) && (whole || st.Size == 0): // a daemon that was killed before it wrote a word leaves that, too
		return true, nil
	case h.Magic != k.magic:
		return false, &strange{kindDamaged, path + " is no such file of gpuarb's"}
	case h.BootID != want.BootID:
		return true, nil
	case h.Version != k.version:
		return false, &strange{fmt.Sprintf("v%d", h.Version), fmt.Sprintf("%s is of version %d, not %d", path, h.Version, k.version)}
	case h != want || !whole:
		return false, &strange{kindDamaged, path + " was cut, or has another size"}
	}
	return false, nil
}

// begin makes the header of a mapping ours.
func (k *annexKind) begin(back *backing) *annexHeader {
	head := (*annexHeader)(unsafe.Pointer(&back.mem[0]))
	h := k.ours()
	h.Magic, h.High, h.Alive = 0, head.High, head.Alive
	*head = h
	atomic.StoreUint64(&head.Magic, k.magic)
	return head
}

// eachAnnex opens the annexes, and lays their tables over them. Where one cannot be opened, those before it are open.
func (f *File) eachAnnex(open func(*annexKind) (*backing, error)) error {
	var heads [3]*annexHeader
	for i, k := range []*annexKind{&threadAnnex, &pressureAnnex, &cgroupAnnex} {
		back, err := open(k)
		if err != nil {
			return err
		}
		f.backs, heads[i] = append(f.backs, back), k.begin(back)
	}
	f.Threads.lay(f.backs[1], headerSize, MaxThreads, &heads[0].High)
	f.Pressures.lay(f.backs[2], headerSize, MaxPressures, &heads[1].High)
	f.Cgroups.lay(f.backs[3], headerSize, MaxCgroups, &heads[2].High)
	f.alive = &heads[1].Alive
	return nil
}

// SetAlive notes that the daemon lives, at a time of the boot's own clock in nanoseconds.
func (f *File) SetAlive(at int64) { atomic.StoreInt64(f.alive, at) }

// Alive is when the last daemon was last known to live, and 0 where nobody knows; now bounds it.
func (f *File) Alive(now int64) int64 {
	return min(max(atomic.LoadInt64(f.alive), 0), now)
}
