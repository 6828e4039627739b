package ipc

// This file opens and closes jobs of cgroups (bindings) for Go programs and for `gpuarb job`. claim.go opens jobs of
// programs; layout.go has BindRequest.

import (
	"context"
	"math"
	"time"
)

// Binding describes the job of a cgroup. The zero values of all fields but Cgroup, Memory and Name are the defaults.
type Binding struct {
	Cgroup    string // path as in /proc/PID/cgroup, or below the mount point of a hierarchy; the cgroup must exist
	Name      string // shown with the memory and the requests of its processes; BindingName shortens it to MaxName bytes
	Container string // ID by which CloseContainer finds the job; "": none
	Memory    uint64 // budget in bytes on each device; NoLimit: MemoryShare, or none if that is 0
	Min       uint64 // reserved part of the budget, in bytes on each device; 0: MinShare, or none if that is 0
	// MemoryShare and MinShare are per mille of each device's memory. MemoryShare replaces a Memory of NoLimit, MinShare a Min of 0.
	MemoryShare, MinShare uint32
	Streams               uint32        // most streams of each process on each device; 0: as the rules say
	Priority              int32         // added to the rule's priority
	Devices               []int         // indices of the only devices; none: all
	Until                 uint32        // UntilGone, UntilClosed or UntilIdle
	Idle                  time.Duration // with UntilIdle: time without a process after which the job is closed
	Flags                 uint32        // BindLossOpen, BindContextsInside, and those of BindAllows
	Wait                  time.Duration // longest wait for the reservation; 0: do not wait; negative: without a limit
	Command               string        // shown to users; "": "cgroup", and its path
}

// BindAllow is something that programs inside the job of a cgroup may do only if the job was opened so.
type BindAllow struct {
	Name string // as in `gpuarb job open --allow`
	Flag uint32 // in BindRequest.Flags
}

// BindAllows lists what a job of a cgroup can allow.
var BindAllows = []BindAllow{{"claim", BindAllowClaim}, {"reserve", BindAllowReserve}, {"exclusive", BindAllowExclusive}, {"priority", BindAllowPriority}}

// request translates b into the message for the daemon.
func (b *Binding) request() (BindRequest, error) {
	name := BindingName(b.Name)
	if wrong := CheckBindingName(name); wrong != nil {
		return BindRequest{}, refuse(StatusRange, "%q cannot be a job's name: %v", b.Name, wrong)
	}
	if len(b.Cgroup) >= TextSize {
		return BindRequest{}, refuse(StatusRange, "the path of the cgroup has %d bytes, the most is %d", len(b.Cgroup), TextSize-1)
	}
	command := b.Command
	if command == "" {
		command = "cgroup " + b.Cgroup
	}
	r := BindRequest{Cgroup: MakeText(b.Cgroup), Name: MakeName(name), Container: MakeName(BindingName(b.Container)),
		Until: b.Until, Flags: b.Flags, IdleMillis: uint64(b.Idle.Milliseconds()),
		Job: JobOpenRequest{Memory: b.Memory, MemoryShare: b.MemoryShare, Min: NoLimit, MinShare: b.MinShare, Streams: b.Streams, Priority: b.Priority, Flags: JobProcessor, Command: MakeText(command)}}
	if b.Min != 0 {
		r.Job.Min = b.Min
	}
	r.Job.setWait(b.Wait)
	if err := r.Job.setDevices(b.Devices); err != nil {
		return BindRequest{}, err
	}
	return r, nil
}

// setWait sets how long the open may wait for the reservation. 0: not at all; negative: without a limit.
func (r *JobOpenRequest) setWait(longest time.Duration) {
	switch {
	case longest == 0:
		r.Flags |= JobNoWait
	case longest < 0:
		r.WaitMillis = NoLimit
	default:
		r.WaitMillis = uint64(min(max(longest.Milliseconds(), 1), math.MaxInt64))
	}
}

// OpenBinding opens the job of a cgroup. Processes of the cgroup that connect from then on belong to the job. If all
// live processes of an earlier job run in the cgroup, that job is put inside. Only a privileged user may open it. If the
// cgroup has a job with the same name, limits and options, OpenBinding returns that job. onNotice may be nil.
//
// OpenBinding uses a connection of its own. If the daemon restarts meanwhile, it asks the next daemon again, and keeps
// its place in the queue, as OpenJob describes.
//
// Errors are those of Claim, StatusPermission, and StatusRange, which includes a cgroup that does not exist. A daemon
// of an earlier version answers with StatusUnknownType.
func (c *Client) OpenBinding(ctx context.Context, b Binding, onNotice func(WaitingReply)) (JobOpenReply, error) {
	request, err := b.request()
	if err != nil {
		return JobOpenReply{}, err
	}
	send := func(c *Client, ctx context.Context, job JobOpenRequest, w Wait) (reply JobOpenReply, err error) {
		request.Job = job
		err = CallWaiting(ctx, c, TypeBind, &request, &reply, w)
		return reply, err
	}
	return openPatiently(ctx, c.path, request.Job, send, onNotice)
}

// CloseBinding closes the binding that one field of the request names. It returns a sentence that says what the
// binding's programs used. StatusNoSession: there is no such binding.
func (c *Client) CloseBinding(ctx context.Context, request UnbindRequest) (string, error) {
	reply, err := replyTo[AccountReply](ctx, c, TypeUnbind, request)
	return reply.Text.String(), err
}

// CloseContainer closes the binding that was opened for a container.
func (c *Client) CloseContainer(ctx context.Context, container string) (string, error) {
	return c.CloseBinding(ctx, UnbindRequest{Container: MakeName(BindingName(container))})
}
