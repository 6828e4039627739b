# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in for tests that share a GPU by gpuarb.

- The time that a test waits for the GPU does not count in the time-out of pytest-timeout.
- A test that leaves GPU memory behind is named at the end of the run.

Copy this one file beside your conftest.py, and start pytest with ``-p pytest_gpuarb``, or write
``pytest_plugins = ["pytest_gpuarb"]`` into the topmost conftest.py. README.md has the options.

The plug-in reads what the daemon shows, from /gpu or from the command ``gpuarb``. It changes nothing there.
Without a daemon it does nothing.
"""

import contextlib
import datetime
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

PROPERTY = "gpuarb_leak"  # name of the property of a report that has the leak of a test


def pytest_addoption(parser):
    group = parser.getgroup("gpuarb")
    group.addoption("--gpuarb-leaks", choices=("report", "error", "off"), help="what to do with a test that leaves GPU memory behind; report names it at the end")
    parser.addini("gpuarb_leaks", "as --gpuarb-leaks", default="report")
    parser.addini("gpuarb_leak_min", "fewest bytes that count as left behind", default="1")
    parser.addini("gpuarb_mount", "folder of gpuarb's files; by default the plug-in finds it, or else runs the command gpuarb", default="")


def pytest_configure(config):
    plugin = Plugin(config)
    config.pluginmanager.register(plugin, "gpuarb-plugin")
    if config.pluginmanager.hasplugin("timeout"):
        config.pluginmanager.register(Timeouts(plugin.daemon), "gpuarb-timeouts")


# ---- What the daemon shows


class Daemon:
    """Reads the state of the daemon, by its files or by the command."""

    def __init__(self, mount=""):
        self.mount = mount or self._find()
        self.broken = ""  # why the last reading failed; empty: it succeeded

    @staticmethod
    def _find():
        """Returns the mount of the daemon that the socket in the environment belongs to; empty: it is not known."""
        runtime = os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.getuid()
        known = {"/run/gpuarb/gpuarb.sock": "/gpu", "/run/gpuarb/client/gpuarb.sock": "/gpu", runtime + "/gpuarb/gpuarb.sock": runtime + "/gpuarb/gpu"}
        socket = os.environ.get("GPUARB_SOCKET", "")
        for path, mount in known.items():
            if (socket == path or not socket and os.path.exists(path)) and os.path.exists(mount + "/leases.json"):
                return mount
        return ""

    def _json(self, file, *command):
        """Returns a file of the mount, or the output of a command, as JSON; an empty list if that fails."""
        try:
            if self.mount and file:
                with open(os.path.join(self.mount, file), encoding="utf-8") as f:
                    text = f.read()
            else:
                text = self._command(*command)
            self.broken = ""
            return json.loads(text)
        except (OSError, ValueError, subprocess.SubprocessError) as err:
            self.broken = getattr(err, "stderr", "") or str(err)
            return []

    @staticmethod
    def _command(*args):
        return subprocess.run(("gpuarb",) + args, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=10).stdout

    def leases(self):
        return self._json("leases.json", "ps", "--json")

    def waiting(self):
        return self._json("", "queue", "--json")

    def jobs(self):
        return self._json("", "jobs", "--json")

    def position(self):
        """Returns the offset in the file of events at which the next event will be; 0: unknown, so callers must compare times."""
        try:
            return os.stat(os.path.join(self.mount, "events")).st_size if self.mount else 0
        except OSError:
            return 0

    def events(self, position):
        """Returns the events from a position on. The file may have lost its oldest lines, so callers must also compare times."""
        try:
            if self.mount:
                with open(os.path.join(self.mount, "events"), "rb") as f:
                    f.seek(position)
                    text = f.read().decode(errors="replace")
            else:
                text = self._command("events", "--json")
        except (OSError, subprocess.SubprocessError) as err:
            self.broken = str(err)
            return
        for line in text.replace("\0", " ").splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def parent_of(pid):
    """Returns the parent of a process; 0: it has ended, or has none."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def is_ours(pid):
    """Says whether a process is this one or one below it."""
    here = os.getpid()
    for _ in range(1000):
        if pid == here:
            return True
        if pid <= 1:
            return False
        pid = parent_of(pid)
    return False


def is_our_lease(lease):
    """Says whether a lease belongs to this process or to one below it. In a container its own PID is nspid."""
    return lease["uid"] == os.getuid() and is_ours(lease["nspid"] or lease["pid"])


# ---- Time-outs


class Timeouts:
    """Extends the timers of pytest-timeout by the time that the test has waited for the GPU."""

    def __init__(self, daemon):
        self.daemon = daemon

    @pytest.hookimpl(hookwrapper=True)
    def pytest_timeout_set_timer(self, item, settings):
        clock = Waits(self.daemon)
        yield

        def left():
            """Returns how many seconds the test still has; 0 or less: the time-out is due."""
            passed, waited = clock.times()
            return settings.timeout - (passed - waited) if waited > 0 else 0

        timer = timer_of(item)
        if timer is not None:  # the method "thread"
            expire = timer.function

            def fire(*args, **kwargs):
                while left() > 0:
                    if timer.finished.wait(max(left(), 0.01)):
                        return
                expire(*args, **kwargs)

            timer.function = fire
            return
        expire = signal.getsignal(signal.SIGALRM)
        if not callable(expire):
            return  # pytest-timeout set no timer: another plug-in did

        def alarm(signum, frame):
            __tracebackhide__ = True
            more = left()
            if more > 0:
                signal.setitimer(signal.ITIMER_REAL, max(more, 0.01))
                return
            expire(signum, frame)

        signal.signal(signal.SIGALRM, alarm)


def timer_of(item):
    """Returns the timer of pytest-timeout's method "thread"; None: there is none."""
    for cell in getattr(getattr(item, "cancel_timeout", None), "__closure__", None) or ():
        if isinstance(cell.cell_contents, threading.Timer):
            return cell.cell_contents
    return None


class Waits:
    """The waits of this process, and of processes that it started, since the object was made."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.began, self.began_wall = time.monotonic(), time.time()
        self.position = daemon.position()

    def times(self):
        """Returns the seconds that have passed, and how many of them were spent waiting. Waits at one time count once."""
        now, passed = time.time(), time.monotonic() - self.began
        known = {lease["pid"]: lease["job"] for lease in self.daemon.leases() if is_our_lease(lease)}
        job = self._job(known)
        spans = []

        def counts(row):
            return row.get("job") == job or row.get("pid") in known or is_ours(row.get("pid", 0))

        for e in self.daemon.events(self.position):
            if e.get("kind") in ("served", "refused") and e.get("waited_ms") and counts(e):
                end = datetime.datetime.fromisoformat(e["time"].replace("Z", "+00:00")).timestamp()
                spans.append((end - e["waited_ms"] / 1000, end))
        for t in self.daemon.waiting():
            if counts(t):
                spans.append((now - t["waited_ms"] / 1000, now))
        waited, covered = 0.0, self.began_wall
        for begin, end in sorted(spans):
            waited += max(0.0, end - max(begin, covered))
            covered = max(covered, end)
        return passed, min(waited, passed)

    def _job(self, known):
        """Returns the number of the job of this process; known has the jobs of our processes with a lease. A worker of pytest-xdist
        shares its job with the others: then, and without a job, it returns -1."""
        if os.environ.get("PYTEST_XDIST_WORKER"):
            return -1
        for job in known.values():
            return job
        above, pid = set(), os.getpid()
        while pid > 1:
            above.add(pid)
            pid = parent_of(pid)
        for j in self.daemon.jobs():
            if j["job"] is not None and (j["pid"] in above or os.getpid() in j["processes"]):
                return j["job"]
        return -1


# ---- Leaks


def clear_last_traceback():
    """Drops the variables of a failed test, which the interpreter keeps for a debugger."""
    step = getattr(sys, "last_traceback", None)
    while step is not None:
        with contextlib.suppress(RuntimeError):  # the frame is running
            step.tb_frame.clear()
            step.tb_frame.f_locals  # brings the frame's own copy of the variables up to date
        step = step.tb_next


def drop_caches():
    """Gives the driver back what the program has freed: garbage, and the caches of frameworks that this process has loaded."""
    gc.collect()
    modules = sys.modules
    with contextlib.suppress(Exception):
        if "torch" in modules and modules["torch"].cuda.is_initialized():
            torch = modules["torch"]
            torch.cuda.synchronize()
            with contextlib.suppress(AttributeError):
                torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()
    with contextlib.suppress(Exception):
        if "cupy" in modules:
            modules["cupy"].cuda.Device().synchronize()
            modules["cupy"].get_default_memory_pool().free_all_blocks()
    with contextlib.suppress(Exception):
        if "numba.cuda.cudadrv.devices" in modules:
            gpus = modules["numba.cuda.cudadrv.devices"].gpus
            for gpu in vars(gpus).get("lst", ()):
                if gpu.primary_context is not None:
                    with gpu:
                        gpu.primary_context.memory_manager.deallocations.clear()


def human(n):
    """Returns a number of bytes for readers."""
    value = float(n)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return "%d bytes" % n if unit == "bytes" else "%.4g %s" % (value, unit)
        value /= 1024
    return str(n)


def difference(now, before):
    """Returns how much more is held now than before, in bytes by device."""
    return {d: now.get(d, 0) - before.get(d, 0) for d in now if now.get(d, 0) > before.get(d, 0)}


class Plugin:
    """Compares what this process, and those below it, hold of each device before and after each test."""

    def __init__(self, config):
        self.daemon = Daemon(config.getini("gpuarb_mount"))
        self.mode = config.getoption("gpuarb_leaks") or config.getini("gpuarb_leaks")
        if self.mode not in ("report", "error", "off"):
            raise pytest.UsageError('gpuarb_leaks must be "report", "error" or "off", not "%s"' % self.mode)
        try:
            self.least = max(1, int(config.getini("gpuarb_leak_min")))
        except ValueError as err:
            raise pytest.UsageError("gpuarb_leak_min must be a number of bytes, not %r" % config.getini("gpuarb_leak_min")) from err
        self.keep_frames = config.getoption("usepdb", False)
        self.expected = {}  # bytes by device that the test may hold at its end
        self.fixtures = {}  # bytes by device of each living fixture that outlives a test
        self.ended = []  # names of such fixtures that have ended in this test
        self.leaks = []  # (name of the test, text) of all tests
        self.live = self.held() if self.mode != "off" else {}  # bytes by device at the last reading
        self.off = self.mode == "off" or bool(self.daemon.broken)

    def pytest_report_header(self):
        if self.mode == "off":
            return "gpuarb: leaks are not checked (gpuarb_leaks is off)"
        if self.daemon.broken:
            return "gpuarb: leaks are not checked, because the daemon cannot be read: %s" % self.daemon.broken.strip()
        return "gpuarb: leaks=%s, by %s" % (self.mode, self.daemon.mount or "the command gpuarb")

    def held(self):
        """Returns what is held now, in bytes by device. Memory that was freed in stream order does not count."""
        sums = {}
        for lease in self.daemon.leases():
            if lease["state"] != "draining" and is_our_lease(lease):
                sums[lease["device"]] = sums.get(lease["device"], 0) + lease["used_bytes"] - lease["pending_bytes"]
        return sums

    def settled(self):
        """Returns what is held now without garbage and caches, in bytes by device."""
        self.live = self.held()
        if any(self.live.values()):
            if not self.keep_frames:
                clear_last_traceback()
            drop_caches()
            self.live = self.held()
        return dict(self.live)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        self.expected, self.ended = dict(self.live), []
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        lasting = not self.off and fixturedef.scope != "function"
        before = self.settled() if lasting else {}
        yield
        if lasting:
            self.fixtures[id(fixturedef)] = grown = difference(self.settled(), before)
            for device, n in grown.items():
                self.expected[device] = self.expected.get(device, 0) + n

    @pytest.hookimpl(trylast=True)
    def pytest_fixture_post_finalizer(self, fixturedef, request):
        grown = self.fixtures.pop(id(fixturedef), {})
        for device, n in grown.items():
            self.expected[device] = self.expected.get(device, 0) - n
        if grown:
            self.ended.append(fixturedef.argname)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        if call.when != "teardown" or self.off:
            return
        if isinstance(getattr(item, "funcargs", None), dict):
            item.funcargs.clear()  # the values of its fixtures, which pytest drops right after this
        grown = {d: n for d, n in difference(self.settled(), self.expected).items() if n >= self.least}
        if not grown:
            return
        report = outcome.get_result()
        text = "%s of GPU memory left behind (%s)" % (
            human(sum(grown.values())), ", ".join("GPU %s: %s" % (d, human(n)) for d, n in sorted(grown.items())))
        if self.ended:
            text += "; fixtures that ended with it: " + ", ".join(sorted(self.ended))
        report.user_properties.append((PROPERTY, text))
        if self.mode == "error" and report.passed:
            report.outcome, report.longrepr = "failed", text

    def pytest_runtest_logreport(self, report):
        self.leaks += [(report.nodeid, text) for name, text in report.user_properties if name == PROPERTY and report.when == "teardown"]

    def pytest_terminal_summary(self, terminalreporter):
        if not self.leaks:
            return
        terminalreporter.section("gpuarb: tests that left GPU memory behind")
        for test, text in self.leaks:
            terminalreporter.line("%s: %s" % (test, text))
