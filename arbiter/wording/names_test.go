package wording_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Messages name users, jobs, programs and times in one form each, with bounded length and without control characters. alloc_test.go,
// holders_test.go and queue_test.go of package arbiter test whole messages.

// TestNames: names of users and programs are shown safely, whatever characters they have.
func TestNames(t *testing.T) {
	long, now := strings.Repeat("ä", 100), time.Unix(1_700_000_000, 0)
	for _, c := range []struct{ got, want string }{
		{wording.Plain("train"), "train"},
		{wording.Plain("a\x1b[31mb\n\xff"), "a?[31mb?\ufffd"},
		{wording.Plain(long), long[:2*64] + "…"},
		{wording.Plain(long[:2*64]), long[:2*64]},

		{wording.Process("/usr/bin/ffmpeg", "x -i y", "", 7), "ffmpeg[7]"},
		{wording.Process("", "/opt/a/train.py --big", "", 7), "train.py[7]"},
		{wording.Process("", "", "", 7), "process[7]"},
		{wording.Process("ffmpeg", "", "night\tly", 7), "night?ly (ffmpeg[7])"},

		{wording.Stranger("/usr/bin/blender -b", 7), "blender[7]"},
		{wording.Stranger("kworker/0:1", 7), "kworker/0:1[7]"},
		{wording.Stranger("sh[9] keeps the memory of train", 7), "sh[9] keeps the memory of train"},

		{wording.Job(3, "", ""), "job 3"},
		{wording.Job(3, "", "/usr/bin/python3 x.py"), "job 3 (python3)"},
		{wording.Job(3, "train-a", ""), "train-a (job 3)"},
		{wording.Job(3, "train-a", "python3 x.py"), "train-a (job 3, python3)"},

		{wording.User(4711, ""), "user 4711"},
		{wording.User(4711, "ann"), "user ann"},
		{wording.Setter(0, 4711, "ann"), "root"},
		{wording.Setter(4711, 4711, "ann"), "ann"},
		{wording.Setter(4711, 4711, "4711"), "user 4711"},
		{wording.Setter(4711, 42, "ann"), "user 4711"},
		{wording.Owned("", "x[1]"), "x[1]"},
		{wording.Owned("ann", "x[1]"), "ann's x[1]"},
		{wording.Owned("4711", "x[1]"), "user 4711's x[1]"},

		{wording.Holder("x[1]", 0, "", now, now.Add(-time.Minute)), "x[1] for 60 s"},
		{wording.Holder("x[1]", 1<<30, "", time.Time{}, now), "x[1] 1 GiB"},
		{wording.Holder("x[1]", 1<<30, "reserved", now, now), "x[1] 1 GiB (reserved) for 0 ms"},
		{wording.Holder("x[1]", 1<<30, "unmanaged", now, time.Time{}), "x[1] 1 GiB (unmanaged)"},
		{wording.List(nil, 0), ""},
		{wording.List([]string{"a", "b"}, 2), "a, b"},
		{wording.List([]string{"a", "b"}, 5), "a, b and 3 more"},

		{wording.Caller("", "/usr/bin/train.py 3", 12), "train.py 3 (PID 12)"},
		{wording.Caller("train-a", "train.py 3", 12), "train-a (train.py 3, PID 12)"},
		{wording.Caller("", "/bin/"+long, 12), long[:2*40] + "… (PID 12)"},

		{wording.Span(-time.Second), "0 ms"},
		{wording.Span(1999 * time.Millisecond), "1 s"},
		{wording.Span(119 * time.Second), "119 s"},
		{wording.Span(2 * time.Minute), "2 min"},
		{wording.Span(119 * time.Minute), "119 min"},
		{wording.Span(50 * time.Hour), "50 h"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
