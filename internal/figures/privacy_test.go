package figures

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// With commands = "own", a user sees the arguments of the user's own programs only, and of all
// others the program's name. internal/config/http_test.go tests the setting.

// TestWithOwnCommands fills every command line of a snapshot, so that it also finds a new field
// that is not hidden.
func TestWithOwnCommands(t *testing.T) {
	const ann, bob = 7, 8
	of := func(uid uint32) Snapshot {
		s := Snapshot{Devices: []DeviceState{{Holders: make([]HolderState, 1), UnmanagedBy: make([]UnmanagedState, 1)}},
			Leases: make([]LeaseState, 1), Processes: make([]ProcessState, 1), Jobs: make([]JobState, 1), Queue: make([]TicketState, 1)}
		if n := fillCommands(reflect.ValueOf(&s).Elem(), uid); n != 6 {
			t.Fatalf("%d command lines are known, want 6", n)
		}
		return s
	}
	full := of(ann)
	for uid, want := range map[uint32]int{ann: 6, bob: 0, Stranger: 0} {
		text, err := json.Marshal(full.WithOwnCommands(uid))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), "--token=secret"); got != want {
			t.Errorf("user %d is shown %d command lines, want %d", uid, got, want)
		}
		if got := strings.Count(string(text), `"command":"`); got != 6 || strings.Count(string(text), "train.py") != 6 {
			t.Errorf("user %d is shown %d programs in %s", uid, got, text)
		}
	}
	if !reflect.DeepEqual(full, of(ann)) {
		t.Error("the snapshot itself was changed")
	}
	unknown := Snapshot{Devices: []DeviceState{{UnmanagedBy: []UnmanagedState{{UID: 0, Command: "/bin/x --token=secret"}}}}}
	if got := unknown.WithOwnCommands(0).Devices[0].UnmanagedBy[0].Command; got != "x" {
		t.Errorf("of a process whose user is not known %q is shown", got)
	}
}

// fillCommands sets each Command and the UID and User beside it, and returns their number.
func fillCommands(v reflect.Value, uid uint32) (n int) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			n += fillCommands(v.Index(i), uid)
		}
	case reflect.Struct:
		if command := v.FieldByName("Command"); command.IsValid() {
			command.SetString("/opt/train.py --token=secret")
			v.FieldByName("UID").SetUint(uint64(uid))
			v.FieldByName("User").SetString("somebody")
			n++
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				n += fillCommands(f, uid)
			}
		}
	}
	return n
}

func TestProgramOf(t *testing.T) {
	for command, want := range map[string]string{
		"": "", "train.py": "train.py", "/usr/bin/python3 train.py": "python3", " a b": "a", "a/": "", "/a b/c": "a", "nginx: worker x": "nginx:",
	} {
		if got := ProgramOf(command); got != want {
			t.Errorf("the program of %q is %q, want %q", command, got, want)
		}
	}
}
