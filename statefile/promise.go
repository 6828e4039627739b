package statefile

import "sync/atomic"

// What the records of a request need of memory is allocated before the request takes the
// daemon's lock: Promise counts how many may be taken, and has so many records of each table,
// and some more, fit to be touched.

// spare is how many records of a table are fit to be touched beyond those that are promised:
// for what no request takes, and so that memory is not allocated each time.
const (
	spare        = 32
	spareThreads = 1024 // small ones; one request can have others' served
)

// most is how many records of a table one request takes, beside leases.
const most = 2

// Promise makes ready for a request that takes so many leases at the most. Unlike the rest
// of a File it needs no lock, and is to be called without one. Kept is its reverse, for when
// the request has taken what it takes.
func (f *File) Promise(leases int) {
	n, l := int(f.promised.Add(most)), int(f.promisedLeases.Add(int64(leases)))
	f.Jobs.promise(n, spare)
	f.Sessions.promise(n, spare)
	f.Leases.promise(l, spare)
	f.Tickets.promise(n, spare)
	f.Limits.promise(n, spare)
	f.Threads.promise(n, spareThreads)
	f.Pressures.promise(n, spare)
	f.Cgroups.promise(n, spare)
}

// Kept takes a Promise back.
func (f *File) Kept(leases int) {
	f.promised.Add(-most)
	f.promisedLeases.Add(-int64(leases))
}

// Late is how many times memory had to be allocated for a record that nobody had promised.
func (f *File) Late() (n int64) {
	for _, b := range f.backs {
		n += b.late.Load()
	}
	return n
}

// promise has n records beyond those ever used, and a few more, fit to be touched.
func (t *table[T]) promise(n, spare int) {
	need := min(int(atomic.LoadUint32(t.high))+n+spare, len(t.rows))
	if need <= int(t.backed.Load()) {
		return
	}
	need = min(need+spare, len(t.rows))
	t.ensure(int(t.backed.Load()), need)
	raise(&t.backed, int64(need))
}
