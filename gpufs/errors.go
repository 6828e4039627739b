package gpufs

import "errors"

// Why a mount point cannot be used; test with errors.Is.
var (
	ErrBusy     = errors.New("something else is mounted there")
	ErrNotDir   = errors.New("it is not a directory")
	ErrNotEmpty = errors.New("the directory is not empty")
	ErrNoFuse   = errors.New("FUSE is not available")
)

// MountError says what is in the way, and what can be done about it.
type MountError struct {
	Path   string
	Err    error  // one of the above
	Detail string // what was found
	Advice string // what the user can do
}

func (e *MountError) Error() string {
	text := "mount " + e.Path + ": " + e.Err.Error()
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

func (e *MountError) Unwrap() error { return e.Err }
