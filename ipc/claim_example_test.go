package ipc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

// This file has the examples that the package's documentation shows for claims. They run against the daemon of
// waiting_test.go, which has one device to give (export_test.go).

// ExampleClient_Claim takes a device, works on it, and gives it back.
func ExampleClient_Claim() {
	daemon := startOneDevice()
	defer daemon.stop()
	ctx := context.Background()
	client, err := ipc.Dial(ctx, daemon.path) // ipc.FindSocket returns the daemon's usual paths
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	claim, err := client.Claim(ctx, ipc.ClaimRequest{Command: "nightly tests"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("CUDA_VISIBLE_DEVICES=%d\n", claim.Devices[0].Ordinal)
	if err := claim.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: CUDA_VISIBLE_DEVICES=0
}

// ExampleClient_TryClaim asks for a device that another process has, and does not wait.
func ExampleClient_TryClaim() {
	daemon := startOneDevice()
	defer daemon.stop()
	ctx := context.Background()
	client, err := ipc.Dial(ctx, daemon.path)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	mine, err := client.TryClaim(ctx, ipc.ClaimRequest{})
	fmt.Println("the first:", err)
	_, err = client.TryClaim(ctx, ipc.ClaimRequest{})
	fmt.Println("the second is busy:", errors.Is(err, ipc.ErrBusy))
	fmt.Println("released:", mine.Release(ctx))
	// Output:
	// the first: <nil>
	// the second is busy: true
	// released: <nil>
}

// ExampleClient_Claim_context gives up its place in the queue when the context ends.
func ExampleClient_Claim_context() {
	daemon := startOneDevice()
	defer daemon.stop()
	ctx := context.Background()
	client, err := ipc.Dial(ctx, daemon.path)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mine, err := client.Claim(ctx, ipc.ClaimRequest{})
	if err != nil {
		log.Fatal(err)
	}

	patience, enough := context.WithTimeout(ctx, time.Minute)
	defer enough()
	_, err = client.Claim(patience, ipc.ClaimRequest{OnNotice: func(n ipc.WaitingReply) {
		fmt.Printf("number %d in the queue for %s\n", n.Position, n.Text.String())
		enough() // the wait is too long for this program
	}})
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(err, ipc.ErrCancelled))
	fmt.Println(mine.Release(ctx))
	// Output:
	// number 1 in the queue for GPU 0
	// true true
	// <nil>
}

// oneDevice is a daemon with one device, for the examples.
type oneDevice struct {
	path string
	stop func()
}

func startOneDevice() oneDevice {
	dir, err := os.MkdirTemp("", "ipc")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	stop, err := ipc.StartClaimDaemon(path)
	if err != nil {
		log.Fatal(err)
	}
	return oneDevice{path, func() { stop(); os.RemoveAll(dir) }}
}
