package secondwall

// This file compares the limits in force with the targets, and changes them in the steps that doc.go lists. dmem.go and nvml.go read
// and write single limits.

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
)

// By says whether the kernel or the driver holds a limit.
type By string

// The values of By.
const (
	ByNobody By = ""
	ByKernel By = "kernel"
	ByDriver By = "driver"
)

// Granule is the unit of limits. Callers round limits up to it, so that neither a kernel nor a driver rounds them again.
const Granule = 2 << 20

// Device is a device, with its driver if that may have limits by cgroup.
type Device struct {
	UUID   [16]byte // identifies it for the driver
	PCI    string   // identifies it for the kernel
	Driver Driver   // nil: the vendor's driver has no limits by cgroup
}

// Target is the limit that a cgroup should have on a device.
type Target struct {
	Path  string
	Limit uint64 // bytes, a multiple of Granule; NoLimit: the original limit
}

// Result is the limit that a cgroup has on a device.
type Result struct {
	Path   string
	By     By     // ByNobody: no limit is in force
	Limit  uint64 // valid if By is not ByNobody
	Err    error  // why no limit, or not the right one, is in force; nil: the target holds
	Absent bool   // whether Err only says that the folder of the cgroup is gone
}

// Walls is the set of records of the limits that this package must put back later.
type Walls struct {
	mu      sync.Mutex // guards which records exist; the content of a record belongs to the call of Settle for its device
	records *statefile.Walls
	rows    map[key]int // indices in records
}

// key identifies a record.
type key struct {
	uuid   [16]byte // the device's UUID, if region is ""; else zero
	region string   // name in the kernel's controller; "": the limit is in the driver
	path   string   // path of the cgroup
	folder uint64   // inode number of the cgroup's folder
}

// New returns the Walls with the records of a file, which an earlier daemon may have written.
func New(records *statefile.Walls) *Walls {
	w := &Walls{records: records, rows: map[key]int{}}
	records.Each(func(i int, r *statefile.Wall) {
		k := key{r.UUID, r.RegionOf(), r.PathOf(), r.Folder}
		if _, twice := w.rows[k]; twice || k.path == "" {
			records.Free(i) // the file is damaged
			return
		}
		w.rows[k] = i
	})
	return w
}

// Has reports whether there are records of limits on a device.
func (w *Walls) Has(dev Device) bool { return len(w.keysOf(dev)) > 0 }

// Empty reports whether there are no records at all.
func (w *Walls) Empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.rows) == 0
}

// Settle sets the limits of a device that differ from the targets. It puts back the original limit of each recorded cgroup that has no
// target. If the limit of a target cannot be read or set, all records with the path of its cgroup stay as they are. The argument
// roots has the mount points of the cgroup v2 hierarchies.
//
// The result by says whether the kernel or the driver can hold limits on the device. If neither can, why has the reason. The results have
// an entry for each target, in the same order, and then one for each limit that could not be put back. After ctx has ended, Settle
// begins no write, because another daemon may have started.
func (w *Walls) Settle(ctx context.Context, dev Device, roots []string, targets []Target) (by By, results []Result, why error) {
	m := maker{ctx: ctx, w: w, dev: dev, roots: roots}
	by, m.region, why = dev.choose(roots)
	wanted, failed := map[key]bool{}, map[string]bool{} // failed: by path, because the key of a failed hold may be incomplete
	for _, t := range targets {
		r, k := m.hold(by, why, t)
		results = append(results, r)
		wanted[k] = true
		failed[t.Path] = r.Err != nil && !r.Absent
	}
	for _, k := range w.keysOf(dev) {
		if wanted[k] || failed[k.path] {
			continue
		}
		if err := m.putBack(k); err != nil && !m.isGone(k) {
			results = append(results, Result{Path: k.path, By: ByNobody, Err: fmt.Errorf("the original limit cannot be put back, and is tried again each second: %w", err)})
		}
	}
	return by, results, why
}

// choose returns who can hold limits on the device: the driver if it has limits, else the kernel.
func (d Device) choose(roots []string) (by By, region string, why error) {
	if d.Driver != nil && len(roots) > 0 {
		_, _, err := d.Driver.Limits(roots[0])
		if err == nil {
			return ByDriver, "", nil
		} else if !errors.Is(err, ErrUnsupported) {
			return ByNobody, "", err
		}
		why = err
	}
	region, err := regionOf(roots, d.PCI)
	if err != nil {
		return ByNobody, "", errors.Join(why, err)
	}
	return ByKernel, region, nil
}

// keysOf returns the keys of a device's records.
func (w *Walls) keysOf(dev Device) (keys []key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.rows {
		if k.region == "" && k.uuid == dev.UUID || k.region != "" && isMemoryOf(k.region, dev.PCI) {
			keys = append(keys, k)
		}
	}
	return keys
}

// find returns the record with a key; nil: there is no such record.
func (w *Walls) find(k key) *statefile.Wall {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, known := w.rows[k]; known {
		return w.records.At(i)
	}
	return nil
}

// add makes and commits the record of a limit. stood is the original limit, which is put back later. now is the limit in force. The two
// differ if the limit in force is inherited from a cgroup around.
func (w *Walls) add(k key, stood, now uint64) (*statefile.Wall, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, r, err := w.records.New()
	if err != nil {
		return nil, fmt.Errorf("%d limits are set, the most that there can be: close some jobs of cgroups (`gpuarb job list` lists them)", statefile.MaxWalls)
	}
	if !r.SetPlace(k.path, k.region) {
		w.records.Free(i)
		return nil, fmt.Errorf("the path of the cgroup or the name of the region %s is too long to be recorded", k.region)
	}
	r.UUID, r.Folder, r.Stood, r.Wrote, r.Next = k.uuid, k.folder, stood, now, now
	w.records.Commit(i)
	w.rows[k] = i
	return r, nil
}

// drop frees the record with a key, which must exist.
func (w *Walls) drop(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records.Free(w.rows[k])
	delete(w.rows, k)
}

// maker has what one call of Settle needs.
type maker struct {
	ctx    context.Context
	w      *Walls
	dev    Device
	roots  []string
	region string // the device's region, if the kernel holds its limits; else ""
}

// limit is the limit of one cgroup on one device, in the kernel or in a driver. The result own is false if the cgroup inherits the
// limit from a cgroup around it.
type limit interface {
	by() By
	read() (limit uint64, own bool, err error)
	write(limit uint64) error
}

// limitIn returns the limit of a cgroup's folder: the kernel's for a region, the driver's if region is "".
func (m *maker) limitIn(in *folder, region string) (limit, error) {
	switch {
	case region != "":
		return kernelLimit{in, region}, nil
	case m.dev.Driver == nil:
		return nil, errors.New("the driver that has the limit is gone")
	}
	return driverLimit{in, m.dev.Driver}, nil
}

// hold sets the limit of a target. It also returns the key that the target's record has, even if there is no such record.
func (m *maker) hold(by By, why error, t Target) (Result, key) {
	k := key{region: m.region, path: t.Path}
	if m.region == "" {
		k.uuid = m.dev.UUID
	}
	in, err := openFolder(m.roots, t.Path)
	if err != nil {
		return Result{Path: t.Path, Err: err, Absent: errors.Is(err, errAbsent)}, k
	}
	defer in.close()
	k.folder = in.inode
	if by == ByNobody {
		return Result{Path: t.Path, Err: why}, k
	}
	l, err := m.limitIn(in, m.region)
	if err != nil {
		return Result{Path: t.Path, Err: err}, k
	}
	r := Result{Path: t.Path, By: l.by()}
	if r.Limit, r.Err = m.lower(l, k, t.Limit); r.Limit == NoLimit {
		r.By = ByNobody
	}
	r.Absent = r.Err != nil && m.isGone(k)
	return r, k
}

// isGone reports whether the folder of a key was removed, or removed and made again.
func (m *maker) isGone(k key) bool {
	in, err := openFolder(m.roots, k.path)
	if err != nil {
		return errors.Is(err, errAbsent)
	}
	defer in.close()
	return in.inode != k.folder
}

// lower sets a limit to the smaller of most and the original limit. A limit that has no record and is low enough stays. lower
// returns the limit in force.
func (m *maker) lower(l limit, k key, most uint64) (now uint64, err error) {
	now, own, err := l.read()
	if err = errors.Join(err, m.ctx.Err()); err != nil {
		return NoLimit, err
	}
	stood := now
	if !own {
		stood = NoLimit
	}
	record := m.w.find(k)
	switch {
	case record == nil && now <= most:
		return now, nil
	case record == nil:
		if record, err = m.w.add(k, stood, now); err != nil {
			return now, err
		}
		faults.At("wall.recorded")
	case !record.IsOurs(now):
		record.Replace(stood)
	}
	return m.change(l, record, now, min(most, record.Stood))
}

// change carries out steps 3 to 6 of doc.go: it sets a limit from now, the limit in force, to next. If next is in force already, it
// writes only the record. It returns the limit in force.
func (m *maker) change(l limit, record *statefile.Wall, now, next uint64) (uint64, error) {
	record.Announce(now, next)
	if !holds(now, next) {
		faults.At("wall.announced")
		if err := m.ctx.Err(); err != nil {
			return now, err
		}
		if err := l.write(next); err != nil {
			return now, err
		}
		faults.At("wall.written")
		var err error
		if now, _, err = l.read(); err != nil {
			return NoLimit, err
		}
	}
	if !holds(now, next) {
		return now, stays(now, next)
	}
	record.Announce(now, now)
	return now, nil
}

// holds reports whether a limit in force is the wanted limit. The kernel or the driver may have rounded it down.
func holds(now, want uint64) bool { return now <= want && want-now < Granule }

// stays returns the error for a write that had no effect: the limit in force is now, and the written limit was want.
func stays(now, want uint64) error {
	return fmt.Errorf("the limit stays at %s instead of %s: the cgroup uses more than that, or its driver does not take the limit", text(now), text(want))
}

// text returns a limit as messages show it.
func text(limit uint64) string {
	if limit == NoLimit {
		return "max"
	}
	return fmt.Sprintf("%d bytes", limit)
}

// putBack writes the original limit, checks that it is in force, and frees the record. It frees the record without a write if the folder is
// gone or was made again, or if another program has set the limit in force.
func (m *maker) putBack(k key) error {
	in, err := openFolder(m.roots, k.path)
	if errors.Is(err, errAbsent) {
		m.w.drop(k)
		return nil
	} else if err != nil {
		return err
	}
	defer in.close()
	if in.inode != k.folder {
		m.w.drop(k)
		return nil
	}
	l, err := m.limitIn(in, k.region)
	if err != nil {
		return err
	}
	now, _, err := l.read()
	if err = errors.Join(err, m.ctx.Err()); err != nil {
		return err
	}
	if record := m.w.find(k); record.IsOurs(now) && now != record.Stood {
		record.Announce(now, record.Stood)
		faults.At("wall.putback")
		if err := l.write(record.Stood); err != nil {
			return err
		}
		now, own, err := l.read()
		if err != nil {
			return err
		}
		// If the cgroup has no limit of its own any more, now is the limit of a cgroup around it, and the original limit is in force.
		if inherits := record.Stood == NoLimit && !own; !holds(now, record.Stood) && !inherits {
			return stays(now, record.Stood)
		}
		faults.At("wall.restored")
	}
	m.w.drop(k)
	return nil
}
