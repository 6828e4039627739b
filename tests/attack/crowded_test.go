package attack

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a process with the greatest allowed number of waiting requests is told that bound and when to
// retry. tests/arbitration/crowded_test.go shows the same for whole programs.

// TestBeyondTheBoundOfAProcess: a process that has 64 waiting requests is refused at the next one, with the bound and the time after which it
// may retry. A claim retries by itself, and is served when the device is free.
func TestBeyondTheBoundOfAProcess(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "100M", NoMount: true, Config: strings.Replace(waiting, "max", "1h", 1)})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := ipc.Dial(ctx, m.Socket)
	check(t, err)
	defer client.Close()
	mine, err := client.Claim(ctx, ipc.ClaimRequest{})
	check(t, err)
	partyOf(t, m, 60*mib)
	p, other := partyOf(t, m, 1*mib), partyOf(t, m, 1*mib)
	var parked []*asked
	for n := range 64 {
		of := p
		if n >= 40 { // a session has 64 connections, some of which do not wait
			of = other
		}
		r := of.ask(ctx, 50*mib)
		r.parked()
		parked = append(parked, r)
	}

	c, err := ipc.Dial(ctx, m.Socket)
	check(t, err)
	defer c.Close()
	check(t, p.s.Join(ctx, c))
	reply, err := c.AllocWaiting(ctx, ipc.AllocRequest{Slot: p.slot, Kind: ipc.MemoryPlain, Bytes: 50 * mib, Thread: 1}, ipc.Wait{})
	if !errors.Is(err, ipc.StatusCrowded) || !strings.Contains(err.Error(), "64 requests waiting already") {
		t.Errorf("one more request: %v", err)
	}
	if reply.Limit != 3600_000 || reply.Granted != 0 {
		t.Errorf("it may be asked for %d ms, and is granted %d bytes", reply.Limit, reply.Granted)
	}

	told, served := make(chan string, 8), make(chan error, 1)
	go func() {
		claim, err := client.Claim(ctx, ipc.ClaimRequest{OnNotice: func(n ipc.WaitingReply) { told <- n.Text.String() }})
		if err == nil {
			err = claim.Release(ctx)
		}
		served <- err
	}()
	if text := <-told; !strings.Contains(text, "64 requests waiting already") {
		t.Errorf("the claim is told %q", text)
	}
	check(t, mine.Release(ctx))
	check(t, <-served)
	cancel()
	for _, r := range parked {
		if err := r.end(); err == nil {
			t.Error("a request was granted more than there is")
		}
	}
}
