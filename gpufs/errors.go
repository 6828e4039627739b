package gpufs

// This file has the errors of Mount. mountpoint.go and fuse.go return them; package daemon, which mounts, reports
// them.

import "errors"

// Reasons why a mount point cannot be used, for errors.Is.
var (
	ErrBusy     = errors.New("something else is mounted there")
	ErrNotDir   = errors.New("it is not a directory")
	ErrNotEmpty = errors.New("the directory is not empty")
	ErrNoFuse   = errors.New("FUSE is not available")
)

// MountError describes why a mount failed and how the user can solve that.
type MountError struct {
	Path   string
	Err    error  // ErrBusy, ErrNotDir, ErrNotEmpty or ErrNoFuse
	Detail string // the finding behind Err; may be empty
	Advice string // advice to the user; may be empty
}

// Error returns the path, the reason, the finding and the advice.
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

// Unwrap returns Err.
func (e *MountError) Unwrap() error { return e.Err }
