package daemon

// This file opens the state file and the list of failures. start.go calls it. Both files lie beside the socket and
// survive the daemon; package statefile has their format.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
)

// openFailures reads the failures of earlier daemons. It bars clients that caused maxFailures failures, and sets the
// state file aside if there were more than maxFailures failures within failureWindow.
func (d *Daemon) openFailures() error {
	failures, aside, err := statefile.OpenFailures(d.paths.state)
	if err != nil {
		return fmt.Errorf("failures: %w", err)
	}
	if err := d.register(func() { d.failures = failures }); err != nil {
		return errors.Join(err, failures.Close())
	}
	if aside != "" {
		d.log.Warn("the list of earlier failures is lost: its file was not one of this version", "set_aside_as", aside)
	}
	failures.Applied()
	counts := map[procfacts.Started]int{}
	for _, x := range failures.Last() {
		counts[procfacts.Started{PID: int(x.PID), StartTicks: x.StartTicks}]++
	}
	for who, n := range counts {
		if who.PID != 0 && n >= maxFailures {
			d.barred[who] = true
			d.log.Error("a process is not served any more: its requests broke the daemon", "client_pid", who.PID, "client_start", who.StartTicks, "times", n)
		}
	}
	times := failures.Since(d.uptime() - failureWindow)
	if !failures.HasNew() || times <= maxFailures {
		return nil
	}
	if times > maxFailures+1 { // the daemon also fails without the state file
		d.sleep(d.after(failurePause))
	}
	aside, err = statefile.SetAside(d.paths.state)
	if aside != "" {
		d.log.Error("the daemon failed three times within a minute: the state file is set aside, and programs report again what they hold", "file", d.paths.state, "set_aside_as", aside)
	}
	return err
}

// openState opens the state file. If the file cannot be created, the daemon runs without it.
func (d *Daemon) openState() (fresh bool, err error) {
	file, fresh, err := statefile.Open(d.paths.state)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		file, err = statefile.Anonymous(err)
		fresh = true
	}
	if err != nil {
		return false, fmt.Errorf("state file: %w", err)
	}
	if err := d.register(func() { d.file = file }); err != nil {
		return false, errors.Join(err, file.Close())
	}
	if aside := d.file.Aside(); aside != "" {
		d.log.Warn("the state file cannot be read by this version, and is set aside: programs report again what they hold",
			"file", d.paths.state, "set_aside_as", aside)
	}
	if err := d.file.Volatile(); err != nil {
		d.log.Warn("the state cannot be kept: after a restart of the daemon, programs tell it themselves what they hold",
			"file", d.paths.state, "err", err)
	}
	if err := d.file.LostBindings(); err != nil {
		d.log.Warn("the jobs of cgroups that were open are lost, or will be with this daemon: open them again (gpuarb job open)", "err", err)
	}
	if err := d.file.LostSuspensions(); err != nil {
		d.log.Warn("the records of suspended jobs are lost, or will be with this daemon: such jobs are not asked to take their memory again (gpuarb resume)", "err", err)
	}
	return fresh, nil
}

// checkRecords returns an error if the state file has more sessions and jobs than the daemon's limit of open files
// allows. The file was then written by a daemon with a higher limit.
func (d *Daemon) checkRecords() error {
	var sessions, jobs int
	d.file.Sessions.Each(func(int, *statefile.Session) { sessions++ })
	d.file.Jobs.Each(func(int, *statefile.Job) { jobs++ })
	if sessions <= d.sessionCounts.size && jobs <= d.jobCounts.size {
		return nil
	}
	return fmt.Errorf("%d programs and %d jobs run, and a limit of %d open files is enough for %d and %d: start the daemon with the limit that it had "+
		"(LimitNOFILE= of its unit, `ulimit -n`); programs go on meanwhile", sessions, jobs, d.files, d.sessionCounts.size, d.jobCounts.size)
}
