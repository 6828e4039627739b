//go:build full

package slurm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks jobs that wait: a program of the job waits for memory of the GPU, or the plug-in waits for an answer of the daemon.
// Some jobs are cancelled or requeued meanwhile. jobs_full_test.go checks jobs that do not wait.

// outside starts a program outside of Slurm that holds a number of bytes of GPU 0.
func (h *host) outside(bytes int) *rig.Program {
	h.t.Helper()
	p := h.Begin(h.command("root", "cudaprog-dlsym"))
	p.Expect("ready")
	p.Want(fmt.Sprint("alloc all ", bytes), "ok")
	return p
}

// waits makes a job's program request the memory of n shards, and returns when the request is in the queue.
func (h *host) waits(j *rig.Program, id string, n int) {
	h.t.Helper()
	j.Tell(fmt.Sprint("alloc a ", shards(n)))
	h.until("the request waits", "gpuarb queue | grep slurm-"+id)
}

// closed waits until the Epilog has run n times for a job, and returns the line that it printed the last time.
func (h *host) closed(id string, n int) string {
	h.t.Helper()
	h.until("the Epilog has closed the job", fmt.Sprintf("test $(grep -cw slurm-%s /var/log/slurm/epilog.log) = %d", id, n))
	return h.shell("root", "grep -w slurm-"+id+" /var/log/slurm/epilog.log | tail -n 1")
}

// nothingLeft checks that no job is open, that no request waits, and that Slurm still gives jobs to the node.
func (h *host) nothingLeft() {
	h.t.Helper()
	h.until("no job is open", "test -z \"$(gpuarb job list | sed 1d)\"")
	h.until("no request waits", "! gpuarb queue | grep slurm-")
	h.until("the node is not drained", "sinfo -h -o %t | grep -w idle")
}

// waiting has options of sbatch. Programs of a job with these options wait for memory if the GPU is full.
const waiting = "--export=ALL,GPUARB_ON_FULL=wait "

// TestFullWaited: the Epilog prints how long requests of the job waited. That time lies between two times that the test measured.
func TestFullWaited(t *testing.T) {
	h := boot(t)
	around := h.outside(6 << 30)
	j := h.submit("ann", waiting+"--gres=shard:3")
	j.Expect("ready")
	asked := time.Now()
	h.waits(j.Program, j.id, 3)
	seen := time.Now()
	h.until("a second has passed", fmt.Sprintf("test $(date +%%s) -gt %d", seen.Unix()+1))
	atLeast := time.Since(seen)
	around.Want("free all", "ok")
	j.Expect("alloc a ok")
	atMost := time.Since(asked)
	j.End()
	line := h.closed(j.id, 1)
	parts := regexp.MustCompile(`of ann: (?:it )?used at most 2.9 GiB of 3 GiB on GPU 0 .*; [0-9]+ requests? waited ([0-9a-z.]+)( in all)?$`).FindStringSubmatch(line)
	if parts == nil {
		t.Fatalf("the Epilog says %q", line)
	}
	const rounding = time.Second / 2
	if waited, err := time.ParseDuration(parts[1]); err != nil || waited < atLeast-rounding || waited > atMost+rounding {
		t.Errorf("the Epilog says %q, and the request waited from %v to %v", line, atLeast, atMost)
	}
	around.End()
	h.nothingLeft()
}

// TestFullWaitingEnds cancels one job and requeues another while their programs wait for memory. Their requests leave the queue. The
// requeued job requests its memory again, and gets it when it is free.
func TestFullWaitingEnds(t *testing.T) {
	h := boot(t)
	around := h.outside(6 << 30)
	j := h.submit("ann", waiting+"--gres=shard:3 --requeue")
	j.Expect("ready")
	h.waits(j.Program, j.id, 3)
	cancelled := h.submit("ben", waiting+"--gres=shard:3")
	h.until("its context waits behind the request of the other job", "gpuarb queue | grep slurm-"+cancelled.id)

	h.shell("ben", "scancel "+cancelled.id)
	h.closed(cancelled.id, 1)
	h.until("the cancelled request has left the queue", "! gpuarb queue | grep slurm-"+cancelled.id)
	h.shell("root", "gpuarb queue | grep slurm-"+j.id)

	again := h.requeue(j)
	h.waits(again, j.id, 3)
	around.Want("free all", "ok")
	again.Expect("alloc a ok")
	again.Want("alloc b 1", "err 2")
	again.End()
	if line := h.closed(j.id, 2); !strings.Contains(line, " waited ") {
		t.Errorf("the Epilog says %q", line)
	}
	around.End()
	h.nothingLeft()
	if held := h.held(); held != "0" {
		t.Errorf("the driver holds %s bytes at the end", held)
	}
}

// TestFullCancelledDuringOpen cancels a Slurm job while the plug-in waits for the daemon, which a signal has stopped. Slurm ends the job
// although the daemon does not answer. After the daemon continues, it has no open job, and the node runs the next job.
func TestFullCancelledDuringOpen(t *testing.T) {
	h := boot(t)
	h.shell("root", `mv /etc/slurm/gpuarb-prolog /etc/slurm/prolog
printf '#!/bin/sh\n/etc/slurm/prolog && kill -STOP $(cat /run/gpuarbd.pid)\n' >/etc/slurm/gpuarb-prolog
chmod +x /etc/slurm/gpuarb-prolog`)
	id := h.shell("ann", "sbatch --parsable --gres=shard:1 -o /run/jobs/never --wrap 'touch /run/jobs/ran'")
	h.until("the plug-in waits for the daemon", "pgrep -f '^gpuarb job open.*slurm-"+id+"'")
	h.shell("ann", "scancel "+id)
	h.until("the job has ended", "test -z \"$(squeue -h -j "+id+")\"")
	h.until("the plug-in has ended", "! pgrep -f '^gpuarb job open'")
	h.shell("root", "kill -CONT $(cat /run/gpuarbd.pid); mv /etc/slurm/prolog /etc/slurm/gpuarb-prolog")
	h.until("no job is open", "test -z \"$(gpuarb job list | sed 1d)\"")
	if _, err := h.command("root", "ls /run/jobs/ran").Output(); err == nil {
		t.Error("the cancelled job has run")
	}
	h.shell("root", "scontrol update nodename=$(hostname) state=resume || true") // Slurm may have drained the node
	after := h.submit("ben", "--gres=shard:1")
	after.Expect("ready")
	after.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	after.Want("alloc b 1", "err 2")
	after.End()
	h.closed(after.id, 1)
	h.nothingLeft()
}
