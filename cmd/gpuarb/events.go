package main

// This file has `gpuarb events`: it prints the event history of the daemon, and with --follow stays
// over restarts of the daemon. Package events has the events.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// eventOptions are the flags of `gpuarb events`.
type eventOptions struct {
	follow bool
	user   string
	job    string
	kind   []string
	since  string
	from   time.Time // time that since means
}

func (a *app) eventsCommand() *cobra.Command {
	var o eventOptions
	command := &cobra.Command{
		Use:   "events",
		Short: "show what was granted, refused, waited for and changed, as /gpu/events",
		Long: `Shows the daemon's event history, one line per event, the oldest first: as sentences, or with --json as the
lines of /gpu/events. Without --follow it ends with the newest one. With --follow it goes on, over a restart
of the daemon too. If events were lost, a line says so.`,
		Args: argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			for _, name := range []string{"user", "job", "kind", "since"} { // an empty value often comes from a variable that is not set: refuse it, because without the flag all events are shown
				if f := command.Flags().Lookup(name); f.Changed && strings.Trim(f.Value.String(), "[]") == "" {
					return fail(exitUsage, "--%s: it is empty; without it, all events are shown", name)
				}
			}
			return a.events(o)
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "then go on with new events as they come")
	flags.StringVar(&o.user, "user", "", "only events about this user, by name or number")
	flags.StringVar(&o.job, "job", "", "only events about this job, by number or name")
	flags.StringVar(&o.since, "since", "", "only events since this time: 90s, 2h or 7d ago, or a time as 14:30, 2026-11-25 or \"2026-11-25 14:30\"")
	flags.StringSliceVar(&o.kind, "kind", nil, "only events of these kinds, as in refused,waited")
	completeFlag(command, "user", a.fromState(offerUsers))
	completeFlag(command, "job", a.fromState(offerJobs))
	completeFlag(command, "kind", cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp))
	return a.jsonFlag(command)
}

// eventPrinter prints lines of the history as they come.
type eventPrinter struct {
	out      io.Writer
	o        eventOptions
	json     bool
	color    bool
	position ipc.EventsRequest // where the part begins that has not been printed yet
	printed  bool              // whether anything was printed

	failed error // error of reading or printing a line; it ends --follow, unlike an error of the connection
}

func (a *app) events(o eventOptions) error {
	for _, kind := range o.kind {
		if !slices.Contains(kindNames(), kind) {
			return fail(exitUsage, "--kind: there is no %q; there are %s", kind, strings.Join(kindNames(), ", "))
		}
	}
	if o.since != "" {
		var err error
		if o.from, err = parseSince(o.since, time.Now()); err != nil {
			return fail(exitUsage, "--since: %w", err)
		}
	}
	p := &eventPrinter{out: os.Stdout, o: o, json: a.json, color: terminalWidth() > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	if o.follow {
		p.position.Flags = ipc.EventsFollow
		go func() { stop(awaitNoReader(os.Stdout)) }() // because the next write, which would find the missing reader, may be hours away
	}
	client, err := a.dial(ctx) // without a session, which events do not need
	if err != nil {
		return err
	}
	a.sayWhichDaemon(client.Path())
	each := p.printPart
	if !o.follow {
		// The timer ends the command if the daemon sends nothing for daemonTimeout.
		silence := time.AfterFunc(daemonTimeout, func() {
			stop(&exitError{exitUnavailable, explainCall(client.Path(), context.DeadlineExceeded)})
		})
		defer silence.Stop()
		each = func(part ipc.EventsPart, lines []byte) error { // printing is not timed, because the reader of a pipe may be slow
			silence.Stop()
			defer silence.Reset(daemonTimeout)
			return p.printPart(part, lines)
		}
	}
	for {
		err = client.Events(ctx, p.position, each)
		_ = client.Close()
		var refused *ipc.ReplyError
		switch {
		case err == nil && !p.printed && isUnknownUser(o.user):
			return fail(exitFailed, "this machine has no user %s, and no event is about one", o.user)
		case err == nil:
			return nil
		case errors.As(err, &refused) && refused.Status == ipc.StatusUnknownType:
			return fail(exitFailed, "the daemon at %s keeps no event history: it is older than this gpuarb", client.Path())
		case errors.As(err, &refused) && refused.Status != ipc.StatusShuttingDown:
			return &exitError{exitUnavailable, explainCall(client.Path(), err)}
		case p.failed != nil:
			return p.failed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !o.follow:
			return &exitError{exitUnavailable, explainCall(client.Path(), err)}
		}
		if client, err = a.reconnect(ctx, client.Path()); err != nil {
			return err
		}
	}
}

// awaitNoReader waits until a pipe or socket f has no reader left, and returns the error of writing
// to it. For any other file it never returns. It writes an empty line, because an empty write would
// not fail. If SIGPIPE is not ignored, that write ends the program, as any other write would.
func awaitNoReader(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		select {}
	}
	for err == nil { // a named pipe may have another reader by now
		// POLLERR and POLLHUP are reported even though no event is asked for.
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd())}}, -1); n > 0 {
			_, err = f.WriteString("\n")
		}
	}
	return err
}

// isUnknownUser reports whether this machine certainly has no user of that name. A number may be
// the ID of a user in a container, so it is never unknown.
func isUnknownUser(name string) bool {
	known := inDatabase("passwd")
	_, err := strconv.ParseUint(name, 10, 32)
	return name != "" && err != nil && known != nil && !known(name)
}

// The pause between two attempts to reach the next daemon doubles from leastPause to mostPause.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// reconnect waits without a time limit until a daemon answers at path again.
func (a *app) reconnect(ctx context.Context, path string) (*ipc.Client, error) {
	a.say("the daemon at %s has gone; waiting for the next one", path)
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		client, err := ipc.Dial(ctx, path)
		if err == nil {
			a.say("connected to %s again; a new daemon's history begins with its start", path)
			return client, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// printPart prints the lines of one message of the daemon.
func (p *eventPrinter) printPart(part ipc.EventsPart, lines []byte) error {
	var text bytes.Buffer
	var unreadable error
	for line := range bytes.Lines(lines) {
		e, err := events.Parse(line)
		if err != nil && !p.json {
			unreadable = fail(exitFailed, "the daemon sent an event that cannot be read: %w; are daemon and gpuarb of one version?", err)
			break // the lines before it are printed
		}
		switch {
		case err != nil: // an event of another version, which a reader of JSON may know
			text.Write(line)
		case !p.o.wants(&e):
		case p.json:
			text.Write(line)
		default:
			text.WriteString(p.sentence(&e))
		}
	}
	p.position.Daemon, p.position.Offset = part.Daemon, part.Next
	p.printed = p.printed || text.Len() > 0
	if _, p.failed = text.WriteTo(p.out); p.failed == nil {
		p.failed = unreadable
	}
	return p.failed
}

// wants reports whether an event passes the filters. "Lost lines" without a user pass too, because
// any of the lost lines may have matched.
func (o *eventOptions) wants(e *events.Event) bool {
	if e.Time.Before(o.from) {
		return false
	}
	if e.Kind == events.Lost && e.UID == nil {
		return true
	}
	is := func(want string, names ...string) bool { return want == "" || slices.Contains(names, want) }
	uid := ""
	for _, n := range []*uint32{e.ByUID, e.UID} {
		if n != nil {
			uid = strconv.FormatUint(uint64(*n), 10)
		}
	}
	return is(o.user, e.User, uid) && is(o.job, strconv.FormatUint(e.Job, 10), e.JobName) &&
		(len(o.kind) == 0 || slices.Contains(o.kind, string(e.Kind)))
}

// kindColors are the colours of events on a terminal, as SGR numbers. Green means given, yellow
// means waiting or taken away, red means failed.
var kindColors = map[events.Kind]string{
	events.Granted: "32", events.Served: "32", events.Within: "32", events.Verified: "32", events.DeviceFound: "32", events.DeviceWoke: "32",
	events.Waited: "33", events.Recalled: "33", events.Over: "33", events.Unmanaged: "33", events.Kept: "33", events.Excess: "33", events.Died: "33", events.Idle: "33", events.Aged: "33", events.Lost: "33",
	events.Refused: "31", events.Deadlock: "31", events.DeviceLost: "31", events.DeviceHung: "31", events.DeviceUnknown: "31", events.Clamped: "31",
}

// kindWidth is the width of the longest kind, in characters.
const kindWidth = 14

// sentence returns an event as a line for users.
func (p *eventPrinter) sentence(e *events.Event) string {
	kind := fmt.Sprintf("%-*s", kindWidth, report.Escape(string(e.Kind)))
	if color := kindColors[e.Kind]; p.color && color != "" {
		kind = "\x1b[" + color + "m" + kind + "\x1b[m"
	}
	text := e.Text
	if e.Kind == events.Lost && e.LostBytes > 0 {
		text = fmt.Sprintf("%d bytes of events are lost here", e.LostBytes)
	}
	return fmt.Sprintf("%s %s %s\n", e.Time.Local().Format(time.DateTime), kind, report.Escape(text))
}

func kindNames() (names []string) {
	for _, kind := range events.Kinds {
		names = append(names, string(kind))
	}
	return names
}
