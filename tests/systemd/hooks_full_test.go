//go:build full

package systemd

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file runs the hooks of idle jobs as transient units of systemd. tests/evict has hooks without systemd.

// TestFullSystemdHooks: a hook runs as the job's owner in a clean environment. If the daemon is killed, the next daemon ends the hook before it
// runs it again. At evict.timeout the hook ends with all processes that it started, also those that left its session.
func TestFullSystemdHooks(t *testing.T) {
	h := boot(t)
	h.shell(`groupadd --gid 1235 lab && useradd --uid 1234 --gid 1235 lab && mkdir -m 777 /run/hook && cat >/usr/bin/hook <<'.'
#!/bin/sh
cd /run/hook
{ id -u; id -g; id -G; pwd -P; cat /proc/$$/oom_score_adj; } >is
tr '\0' '\n' </proc/$$/environ | cut -d= -f1 | sort >names
setsid sleep 1111 &
setsid sh -c 'setsid sleep 1111 & exit' &
wait $!
echo >>runs
exec sleep 1111
.
chmod 755 /usr/bin/hook
cat >/etc/gpuarb/conf.d/hooks.toml <<'.'
[defaults]
on_full = "wait"
devices = [0]
evict.after = "500ms"
evict.how = "hook"
evict.suspend = ["/usr/bin/hook"]
evict.resume = ["/bin/true"]
evict.idle_after = "500ms"
evict.timeout = "8s"
.
gpuarb config check; systemctl reload gpuarbd`)
	idle := h.Interact(h.command("exec setpriv --reuid=1234 --regid=1235 --clear-groups gpuarb run -- cudaprog-dlsym"))
	idle.Want("alloc a 6G", "ok")
	waits := h.Interact(h.command("exec gpuarb run -- cudaprog-dlsym"))
	waits.Tell("alloc b 4G")
	runs := func() int { return strings.Count(h.shell("cat /run/hook/runs 2>/dev/null | tr '\\n' x"), "x") }
	units := func() int {
		return strings.Count(h.shell("systemctl list-units --no-legend 'gpuarb-hook-*' || true"), "gpuarb-hook-")
	}
	sleeps := func() string { return h.shell("pgrep -c -x sleep || true") }

	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.shell("journalctl -q --no-pager -u 'gpuarb-hook-*' _PID=1 || true; tail -n 20 /run/hook/* || true"))
		}
	})

	bounded.Until(t, "the hook runs", func() bool {
		if strings.Contains(h.shell("journalctl -q --no-pager -u gpuarbd"), "keeps its memory") {
			t.Fatal("the hook has failed")
		}
		return runs() == 1
	})
	if is := strings.Fields(h.shell("cat /run/hook/is")); strings.Join(is, " ") != "1234 1235 1235 /run/hook 0" {
		t.Errorf("user, group, groups, folder, oom_score_adj: %q", is)
	}
	if names := strings.Fields(h.shell("cat /run/hook/names")); strings.Join(names, " ") != "GPUARB_BYTES_WANTED GPUARB_DEVICE GPUARB_JOB GPUARB_PIDS PATH" {
		t.Errorf("the environment has %q", names)
	}
	if n := units(); n != 1 {
		t.Errorf("%d units of hooks", n)
	}

	h.shell("systemctl kill --signal=KILL --kill-whom=main gpuarbd")
	bounded.Until(t, "the next daemon runs the hook again", func() bool { return runs() == 2 })
	if n, all := units(), sleeps(); n != 1 || all != "3" {
		t.Errorf("%d units of hooks with %s processes that sleep", n, all)
	}
	bounded.Until(t, "everything of the hook has ended", func() bool { return sleeps() == "0" && units() == 0 })
	bounded.Until(t, "the log says why", func() bool {
		return strings.Contains(h.shell("journalctl -q --no-pager -u gpuarbd"), "/usr/bin/hook failed, or did not end in time")
	})
	idle.Want("free a", "ok")
	waits.Expect("alloc b ok")
	idle.End()
	waits.End()
}
