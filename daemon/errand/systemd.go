package errand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// This file runs hooks as transient units, and stops and starts services.

// hasSystemd reports whether the machine was started by systemd, and the daemon runs as root, so that it may start and stop units.
func hasSystemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil && os.Geteuid() == 0
}

// ofSystemd are the variables that systemd adds to the environment of a unit. A hook must not have them.
var ofSystemd = []string{"HOME", "INVOCATION_ID", "JOURNAL_STREAM", "LANG", "LOGNAME", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "SHELL", "SYSTEMD_EXEC_PID", "USER"}

// EndAll stops the transient units of all hooks whose Name begins with prefix, and waits for their end. The daemon calls it at its
// start, for hooks of an earlier daemon that still run.
func EndAll(ctx context.Context, prefix string) error {
	if !hasSystemd() {
		return nil
	}
	c, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	units, err := c.ListUnitsByPatternsContext(ctx, nil, []string{"gpuarb-" + prefix + "*.service"})
	for _, u := range units {
		result := make(chan string, 1)
		if _, e := c.StopUnitContext(ctx, u.Name, "replace", result); e != nil {
			err = errors.Join(err, e)
			continue
		}
		err = errors.Join(err, wait(ctx, u.Name, result))
	}
	return err
}

// runUnit runs a hook as a transient unit, and waits for its end.
func runUnit(ctx context.Context, h Hook) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout+10*time.Second) // systemd ends the unit before this time is over
	defer cancel()
	c, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	set := func(name string, v any) dbus.Property { return dbus.Property{Name: name, Value: godbus.MakeVariant(v)} }
	name, result := "gpuarb-"+h.Name+".service", make(chan string, 1)
	_, err = c.StartTransientUnitContext(ctx, name, "fail", []dbus.Property{
		// With true, systemd ignores the hook's status, whatever the name of that argument says.
		dbus.PropDescription("gpuarb: " + h.Args[0]), dbus.PropType("oneshot"), dbus.PropExecStart(literal(h.Args), false),
		set("User", strconv.FormatUint(uint64(h.UID), 10)), set("Group", strconv.FormatUint(uint64(h.GID), 10)),
		set("Environment", append([]string{path}, h.Env...)), set("UnsetEnvironment", ofSystemd), set("WorkingDirectory", "/"),
		set("TimeoutStartUSec", uint64(h.Timeout/time.Microsecond)), set("TimeoutStopUSec", uint64(time.Second/time.Microsecond)),
		set("KillMode", "control-group"), set("CollectMode", "inactive-or-failed"),
	}, result)
	if err != nil {
		return err
	}
	return wait(ctx, h.Args[0], result)
}

// literal returns the arguments of a command for systemd, which replaces $NAME in all but the path of the program, and $$ by $.
func literal(args []string) []string {
	all := slices.Clone(args)
	for i := range all[1:] {
		all[i+1] = strings.ReplaceAll(all[i+1], "$", "$$")
	}
	return all
}

// wait waits for the result of a request to systemd to start or stop a unit. what is the command or unit that the error names.
func wait(ctx context.Context, what string, result <-chan string) error {
	select {
	case how := <-result:
		switch how {
		case "done":
			return nil
		case "failed":
			return fmt.Errorf("%s failed, or did not end in time (journalctl -u 'gpuarb-hook-*')", what)
		}
		return fmt.Errorf("%s: systemd says %q", what, how)
	case <-ctx.Done():
		return fmt.Errorf("%s did not end in time", what)
	}
}

// Unit is a systemd service that the daemon stops or starts.
type Unit struct {
	Name    string
	PIDs    []int // processes of the job; Stop refuses unless each of them is in the service
	Timeout time.Duration
}

// Stop stops a service of the system's manager, and waits until it has stopped. It refuses a unit of another kind, a user's manager
// (user@UID.service), gpuarb's own services, and a service that does not contain all of u.PIDs. If the job has no process any more,
// there is nothing to stop, and what runs in the service is not the job's.
func (u Unit) Stop(ctx context.Context) error {
	if len(u.PIDs) == 0 {
		return nil
	}
	return u.ask(ctx, func(c *dbus.Conn) error {
		if !strings.HasSuffix(u.Name, ".service") || strings.HasPrefix(u.Name, "user@") || strings.HasPrefix(u.Name, "gpuarb") {
			return fmt.Errorf("%s is no service that can be stopped for this", u.Name)
		}
		for _, pid := range u.PIDs {
			if in, err := c.GetUnitNameByPID(ctx, uint32(pid)); err != nil || in != u.Name {
				return fmt.Errorf("process %d is not in %s", pid, u.Name)
			}
		}
		return nil
	}, (*dbus.Conn).StopUnitContext)
}

// Start starts the service, and waits until systemd has started it.
func (u Unit) Start(ctx context.Context) error {
	return u.ask(ctx, func(*dbus.Conn) error { return nil }, (*dbus.Conn).StartUnitContext)
}

// ask calls check, and if that has no error do, which stops or starts the service. It waits for the result, for u.Timeout at most.
func (u Unit) ask(ctx context.Context, check func(*dbus.Conn) error, do func(*dbus.Conn, context.Context, string, string, chan<- string) (int, error)) error {
	if !hasSystemd() {
		return fmt.Errorf("%s cannot be stopped or started: the daemon does not run as root under systemd", u.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	c, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := check(c); err != nil {
		return err
	}
	result := make(chan string, 1)
	if _, err := do(c, ctx, u.Name, "replace", result); err != nil {
		return err
	}
	return wait(ctx, u.Name, result)
}
