package gpufs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file checks writes to files of limits: which change the daemon is asked for, who may write, and which errno a
// writer gets. fuzz_test.go writes any bytes; daemon/setlimit_test.go checks what the daemon does with a change.

// last returns the latest of n written settings.
func (v *fakeView) last(t *testing.T, n int) Setting {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.written) != n {
		t.Fatalf("%d settings were made, want %d: %+v", len(v.written), n, v.written)
	}
	return v.written[n-1]
}

// TestSettings: a shell's write to the file of a limit becomes one call of Control.Set, with the limit's owner.
func TestSettings(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	for i, c := range []struct {
		script string
		want   Setting
	}{
		{"echo 1 > devices/0/slots.max", Setting{Of: rules.Owner{Kind: rules.OfDevice}, Device: 0, Name: "slots.max", Value: "1"}},
		{"printf ' max ' > devices/1/slots.max", Setting{Of: rules.Owner{Kind: rules.OfDevice, ID: 1}, Device: 1, Name: "slots.max", Value: "max"}},
		{"echo 4G > processes/300/memory.max", Setting{Of: processOwner(300, 3333), Device: rules.AllDevices, Name: "memory.max", Value: "4G"}},
		{"echo 25% >> processes/300/memory.min", Setting{Of: processOwner(300, 3333), Device: rules.AllDevices, Name: "memory.min", Value: "25%"}},
		{"echo 7 | tee processes/300/streams.max", Setting{Of: processOwner(300, 3333), Device: rules.AllDevices, Name: "streams.max", Value: "7"}},
		{"echo 0 > processes/300/devices/1/memory.min", Setting{Of: processOwner(300, 3333), Device: 1, Name: "memory.min", Value: "0"}},
		{"echo 6G > users/bob/memory.max", Setting{Of: rules.Owner{Kind: rules.OfUser, ID: 1001}, Device: rules.AllDevices, UserName: "bob", Name: "memory.max", Value: "6G"}},
		{"echo 1M > jobs/9/memory.max", Setting{Of: rules.Owner{Kind: rules.OfJob, ID: 9}, Device: rules.AllDevices, Name: "memory.max", Value: "1M"}},
	} {
		output(t, "sh", "-c", "cd \"$1\" && { "+c.script+"; } >/dev/null", "sh", mnt)
		got := v.last(t, i+1)
		if got.By == 0 {
			t.Errorf("%s: by nobody", c.script)
		}
		if got.By = 0; got != c.want {
			t.Errorf("%s: %+v\nwant %+v", c.script, got, c.want)
		}
	}
}

// TestSettingRefused: the writer gets the reason as an errno; the daemon's text is not shown.
func TestSettingRefused(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	for _, c := range []struct {
		refusal error
		want    syscall.Errno
	}{
		{fmt.Errorf("not yours: %w", unix.EPERM), unix.EPERM},
		{unix.EINVAL, unix.EINVAL},
		{fmt.Errorf("no room: %w", unix.ENOSPC), unix.ENOSPC},
		{os.ErrClosed, unix.EIO},
	} {
		v.mu.Lock()
		v.refusal = c.refusal
		v.mu.Unlock()
		if err := os.WriteFile(mnt+"/devices/0/slots.max", []byte("1"), 0); !isErrno(err, c.want) {
			t.Errorf("%v: the writer gets %v, want %v", c.refusal, err, c.want)
		}
	}
}

// TestSettingText: each write is one whole command, at any offset of the file.
func TestSettingText(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	f, err := os.OpenFile(mnt+"/devices/0/slots.max", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n, value := range []string{"1\n", "22\n"} {
		if _, err := f.WriteString(value); err != nil {
			t.Fatal(err)
		}
		if got := v.last(t, n+1).Value; got != strings.TrimSpace(value) {
			t.Errorf("%q was taken for %q", value, got)
		}
	}
	for text, want := range map[string]syscall.Errno{
		"\n": unix.EINVAL, strings.Repeat("1", maxCommand+1): unix.E2BIG,
	} {
		if _, err := f.WriteString(text); !isErrno(err, want) {
			t.Errorf("%d bytes: %v, want %v", len(text), err, want)
		}
	}
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "2\n" {
		t.Errorf("it reads %q, %v", text, err)
	}
	v.last(t, 2)
}

// TestSettingPermission: the kernel lets only the owner write.
func TestSettingPermission(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	if err := os.Chmod(filepath.Dir(filepath.Dir(mnt)), 0o755); err != nil { // t.TempDir gives access to root only
		t.Fatal(err)
	}
	as := func(uid, path string) error {
		_, errs, err := run(t, "setpriv", "--reuid="+uid, "--clear-groups", "sh", "-c", `echo 1 > "$1"`, "sh", mnt+path)
		if err != nil && !strings.Contains(errs, "Permission denied") {
			t.Errorf("%s: %v, %s", path, err, errs)
		}
		return err
	}
	for i, c := range []struct {
		uid, path string
		may       bool
	}{
		{"1001", "/processes/300/memory.max", true},
		{"1001", "/jobs/9/memory.min", true},
		{"1001", "/processes/100/memory.max", false},
		{"1001", "/devices/0/slots.max", false},
		{"1001", "/processes/300/memory.current", false},
		{"1001", "/queue", false},
	} {
		err := as(c.uid, c.path)
		if (err == nil) != c.may {
			t.Errorf("user %s writes to %s: %v", c.uid, c.path, err)
		}
		if c.may {
			if got := v.last(t, i+1).UID; got != 1001 {
				t.Errorf("%s was written as user %d", c.path, got)
			}
		}
	}
}

// TestSettingAttributes: a limit's file can be truncated, as the shell does for `>`, and not changed otherwise.
func TestSettingAttributes(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	file := mnt + "/devices/0/slots.max"
	if err := os.Truncate(file, 0); err != nil {
		t.Errorf("truncate to nothing: %v", err)
	}
	for what, err := range map[string]error{
		"truncate to 5": os.Truncate(file, 5), "chmod": os.Chmod(file, 0o600), "chown": os.Chown(file, 1, 1), "remove": os.Remove(file),
	} {
		if !isErrno(err, unix.EPERM) && !isErrno(err, unix.EACCES) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
