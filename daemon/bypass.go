package daemon

// This file finds the job of a process that uses a device without a lease. The process is in the cgroup of a binding.
// Or it has the job's token in its environment, or a process of the job among its parents, or runs in a cgroup whose
// first process belongs to the job. The readers of the devices (reader.go) call it once for each such process, and
// again every nameEvery; for the cgroup, they call boundJob at each reading. Reports show the job next to the process. Only the job of a
// cgroup is charged (arbiter/unmanaged.go).

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// Variables in a process's environment that show how it runs past the library.
const (
	tokenName   = "GPUARB_JOB"
	preloadName = "LD_PRELOAD"
	disableName = "GPUARB_DISABLE"
)

// cgroupFolders are the folders below sysfs of the hierarchies in which systemd puts every process: cgroup v2, or on
// a machine that also has v1 the hierarchies of v2 and of systemd itself.
var cgroupFolders = []string{"fs/cgroup", "fs/cgroup/unified", "fs/cgroup/systemd"}

// members holds the processes of jobs, by which other processes are found to belong to a job.
type members struct {
	jobs map[procfacts.Started]arbiter.JobID // processes of `gpuarb run` jobs: runners, anchor processes, clients
	own  map[procfacts.Started]arbiter.JobID // clients outside such jobs: each is a job by itself
}

// members lists the current processes of all jobs.
func (d *Daemon) members() members {
	d.lock()
	defer d.unlock()
	m := members{map[procfacts.Started]arbiter.JobID{}, map[procfacts.Started]arbiter.JobID{}}
	for _, s := range d.sessions {
		if d.jobByID[s.job] != nil {
			m.jobs[startedOf(s.peer)] = s.job
		} else {
			m.own[startedOf(s.peer)] = s.job
		}
	}
	for id, j := range d.jobByID {
		if j.bound != nil { // boundJob finds its processes
			continue
		}
		m.jobs[j.runner] = id
		if j.anchor.PID != 0 {
			m.jobs[j.anchor.Started] = id
		}
	}
	return m
}

// jobWithoutLease finds the job of a process that has no lease, and how the process runs past the library. bound is the
// job of its cgroup. 0: it is in no job.
func (d *Daemon) jobWithoutLease(m members, p procfacts.Started, facts procfacts.Facts, bound arbiter.JobID) (arbiter.JobID, figures.Bypass) {
	variables := d.inv.Variables(p.PID, tokenName, preloadName, disableName)
	if bound != 0 { // its processes need no token
		if variables != nil {
			variables[tokenName] = "none"
		}
		return bound, d.bypassOf(p.PID, variables)
	}
	job := m.own[p]
	if id := d.jobOfToken(variables[tokenName], facts.UID); id != 0 {
		job = id
	}
	if job == 0 {
		job = m.firstJob(append([]procfacts.Started{p}, d.inv.Parents(p.PID)...))
	}
	for _, folder := range cgroupFolders {
		if job != 0 || facts.Cgroup == "/" {
			break
		}
		// If the first process of a cgroup belongs to the job, all its processes do. Example: the cgroup of a service
		// whose command is `gpuarb run`. The first process of a login's cgroup is the shell, so this rule does not
		// apply there.
		if eldest, ok := d.inv.Eldest(filepath.Join(cmp.Or(d.paths.sysfs, "/sys"), folder, facts.Cgroup)); ok {
			job = m.firstJob(append([]procfacts.Started{eldest}, d.inv.Parents(eldest.PID)...))
		}
	}
	if job == 0 {
		return 0, figures.BypassUnknown
	}
	return job, d.bypassOf(p.PID, variables)
}

// boundJob returns the open job of the deepest binding around a process; 0: none is around it, or the process has ended.
func (d *Daemon) boundJob(pid int) arbiter.JobID {
	d.lock()
	none := len(d.bindings) == 0
	d.unlock()
	if none || pid == 0 {
		return 0
	}
	in, err := procfacts.Here.Cgroups(pid)
	if err != nil {
		return 0
	}
	d.lock()
	defer d.unlock()
	if j := d.bindingOfLocked(slices.Values(in)); j != nil && j.open {
		return j.id
	}
	return 0
}

// viewOf returns the job of a cgroup to which the files of the mount are limited for a thread that reads them; 0: the thread sees all jobs.
// Privileged threads, and threads in no such cgroup, see all jobs.
func (d *Daemon) viewOf(tid, uid uint32) uint64 {
	job := d.boundJob(int(tid))
	if job != 0 && standingOfThread(tid, uid).Privileged {
		return 0
	}
	return uint64(job)
}

// firstJob returns the job of the first listed process that is in a job of `gpuarb run`; 0: none is.
func (m members) firstJob(processes []procfacts.Started) arbiter.JobID {
	for _, p := range processes {
		if id := m.jobs[p]; id != 0 {
			return id
		}
	}
	return 0
}

// jobOfToken returns the `gpuarb run` job whose token is text. uid is the user of the process that has the token in
// its environment. 0: there is no such job, or the user may not name it.
func (d *Daemon) jobOfToken(text string, uid uint32) arbiter.JobID {
	token, err := ipc.ParseToken(text)
	if err != nil || token.IsZero() {
		return 0
	}
	d.lock()
	defer d.unlock()
	j := d.jobs[token]
	if j == nil || j.uid != uid && j.uid != 0 && uid != 0 {
		return 0
	}
	return j.id
}

// bypassOf returns how a process of a job runs past the library, judged by its environment variables (nil: not known)
// and its mapped files.
func (d *Daemon) bypassOf(pid int, variables map[string]string) figures.Bypass {
	loaded, known := d.inv.HasMapped(pid, shim.LibraryName)
	disabled, preload := variables[disableName], variables[preloadName]
	switch {
	case variables == nil:
		return figures.BypassUnknown
	case disabled != "" && disabled != "0":
		return figures.BypassDisabled
	case loaded:
		return figures.BypassPassed
	case variables[tokenName] == "":
		return figures.BypassCleared
	case preload == "":
		return figures.BypassRemoved
	case !strings.Contains(preload, shim.LibraryName):
		return figures.BypassReplaced
	case known:
		return figures.BypassUnloaded
	}
	return figures.BypassUnknown
}
