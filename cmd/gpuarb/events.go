package main

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

	"github.com/gpuarb/gpuarb/events"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// eventOptions is what `gpuarb events` is asked for.
type eventOptions struct {
	follow bool
	user   string
	job    string
	kind   []string
}

func (a *app) eventsCommand() *cobra.Command {
	var o eventOptions
	command := &cobra.Command{
		Use:   "events",
		Short: "show what was granted, refused, waited for and changed, as /gpu/events",
		Long: `Shows the daemon's event history, one line per event, the oldest first: as sentences, or with --json as the
lines of /gpu/events. Without --follow it ends with the newest one. With --follow it goes on, over a restart
of the daemon too. Where events were lost, a line says so.`,
		Args: takes(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			for _, name := range []string{"user", "job", "kind"} { // as of a variable that is not set: everybody's are not asked for
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
	flags.StringSliceVar(&o.kind, "kind", nil, "only events of these kinds, as in refused,waited")
	completeFlag(command, "user", a.fromState(offerUsers))
	completeFlag(command, "job", a.fromState(offerJobs))
	completeFlag(command, "kind", cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp))
	return a.jsonFlag(command)
}

// eventPrinter prints lines of the history as they come.
type eventPrinter struct {
	out   io.Writer
	o     eventOptions
	json  bool
	color bool
	reach ipc.EventsRequest // what has not been printed yet
	some  bool              // something was printed

	failed error // of reading or printing a line: unlike one of the connection, it ends --follow
}

func (a *app) events(o eventOptions) error {
	for _, kind := range o.kind {
		if !slices.Contains(kindNames(), kind) {
			return fail(exitUsage, "--kind: there is no %q; there are %s", kind, strings.Join(kindNames(), ", "))
		}
	}
	p := &eventPrinter{out: os.Stdout, o: o, json: a.json, color: terminalWidth() > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	if o.follow {
		p.reach.Flags = ipc.EventsFollow
		go func() { stop(awaitUnread(os.Stdout)) }() // the write that would find it out may be hours away
	}
	client, err := a.dial(ctx) // it may take as long as it likes, and needs no session
	if err != nil {
		return err
	}
	a.sayWhich(client.Path())
	for {
		err = client.Events(ctx, p.reach, p.part)
		_ = client.Close()
		var refused *ipc.ReplyError
		switch {
		case err == nil && !p.some && isNobody(o.user):
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

// awaitUnread returns once a file has no reader left, with the error of writing to it. A file that is neither pipe nor socket is left alone.
// The write is of an empty line, since an empty write would not fail; as any other it ends the program by SIGPIPE where that is not ignored.
func awaitUnread(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		select {}
	}
	for err == nil { // a named pipe may have another reader by now
		// Without any event asked for, it is POLLERR and POLLHUP that end it.
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd())}}, -1); n > 0 {
			_, err = f.WriteString("\n")
		}
	}
	return err
}

// isNobody tells that a name is surely no user's of this machine; a number may be one's in a container.
func isNobody(name string) bool {
	known := inDatabase("passwd")
	_, err := strconv.ParseUint(name, 10, 32)
	return name != "" && err != nil && known != nil && !known(name)
}

// The pauses between two attempts to reach the next daemon.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// reconnect waits for the next daemon at the same socket, for as long as it takes.
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

// part prints the lines of one message.
func (p *eventPrinter) part(part ipc.EventsPart, lines []byte) error {
	var text bytes.Buffer
	var unreadable error
	for line := range bytes.Lines(lines) {
		e, err := events.Parse(line)
		if err != nil && !p.json {
			unreadable = fail(exitFailed, "the daemon sent an event that cannot be read: %w; are daemon and gpuarb of one version?", err)
			break // after those before it
		}
		switch {
		case err != nil: // of another version: whoever asked for JSON may know it
			text.Write(line)
		case !p.o.wants(&e):
		case p.json:
			text.Write(line)
		default:
			text.WriteString(p.sentence(&e))
		}
	}
	p.reach.Daemon, p.reach.Offset = part.Daemon, part.Next
	p.some = p.some || text.Len() > 0
	if _, p.failed = text.WriteTo(p.out); p.failed == nil {
		p.failed = unreadable
	}
	return p.failed
}

// wants tells whether an event passes the filters. Lost lines of no one user pass too: any of them may have matched.
func (o *eventOptions) wants(e *events.Event) bool {
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

// kindColors are the colours of kinds on a terminal, by SGR's numbers: green for what was given, yellow for what waits or was
// taken away, red for what went wrong.
var kindColors = map[events.Kind]string{
	events.Granted: "32", events.Served: "32", events.Within: "32", events.Verified: "32", events.DeviceFound: "32", events.DeviceWoke: "32",
	events.Waited: "33", events.Recalled: "33", events.Over: "33", events.Unmanaged: "33", events.Kept: "33", events.Excess: "33", events.Died: "33", events.Lost: "33",
	events.Refused: "31", events.Deadlock: "31", events.DeviceLost: "31", events.DeviceHung: "31", events.DeviceUnknown: "31", events.Clamped: "31",
}

// kindWidth is that of the longest kind.
const kindWidth = 14

// sentence is an event as a line for people.
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
