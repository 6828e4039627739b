package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file measures how soon the memory of a killed program is granted again. The floor is the time until the parent
// of the program is notified.

// BenchmarkReclaim kills a program that has most of a device, and requests memory until
// the memory of the dead program is granted to another program. The time begins with the kill, so it
// includes the exit of the process. dead-p50-ns is the time until its parent was notified.
func BenchmarkReclaim(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: "8G", NoMount: true})
	s, slot := session(b, m)
	var took, dead []time.Duration
	for b.Loop() {
		b.StopTimer()
		victim := start(b, m.Command(m.PreloadEnv(), rig.Build(b, "programs/cudaprog-dlsym")))
		if answer := victim.ask(b, "alloc a 6G"); answer != "alloc a ok" {
			b.Fatal(answer)
		}
		b.StartTimer()
		began := time.Now()
		if err := victim.cmd.Process.Kill(); err != nil {
			b.Fatal(err)
		}
		_ = victim.cmd.Wait()
		dead = append(dead, time.Since(began))
		grow(b, s, slot, 4<<30)
		took = append(took, time.Since(began))
		s.Page.GiveCredit(slot, 4<<30) // freed, so that the next victim can have it
	}
	report(b, took)
	b.ReportMetric(float64(percentile(dead, 50).Nanoseconds()), "dead-p50-ns")
}

// grow repeats a request for bytes until it is granted.
func grow(b *testing.B, s *ipc.ShimSession, slot uint32, bytes uint64) {
	b.Helper()
	deadline := time.Now().Add(rig.Patience)
	for {
		_, err := s.Main.Alloc(context.Background(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes})
		var refused *ipc.ReplyError
		if err == nil {
			return
		}
		if !errors.As(err, &refused) || time.Now().After(deadline) {
			b.Fatal(err)
		}
		time.Sleep(50 * time.Microsecond)
	}
}
