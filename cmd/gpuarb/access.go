package main

// This file says why a user may not connect to a socket, and how to get access. client.go and past.go
// call it.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// mayNotConnect returns the message for a socket that refused the user with EACCES: the group that
// may connect, and how to join it.
func mayNotConnect(socket string) string {
	text := "you may not connect to " + socket
	at, owner, mode, ok := denies(socket)
	if !ok {
		return text + "; join the group that owns it, and log in again"
	}
	needs := fs.FileMode(0o020) // connecting needs the right to write to the socket
	if mode.IsDir() {
		needs = 0o010
	}
	if mode&needs == 0 || owner.Gid == 0 {
		return fmt.Sprintf("%s: only %s may use %s", text, userName(owner.Uid), at)
	}
	group, known := groupName(owner.Gid)
	if me, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && known {
		if memberOf(me, owner.Gid) {
			return fmt.Sprintf("%s: you are in its group %s, but this session began before that; log in again, or begin one with: newgrp %s", text, group, group)
		}
		return fmt.Sprintf("%s; join its group: `sudo usermod -aG %s %s`, and log in again", text, group, me.Username)
	}
	return fmt.Sprintf("%s; join its group %s, and log in again", text, group)
}

// denies returns the socket, or the folder around it that the user may not enter, with its owner.
func denies(socket string) (at string, owner *syscall.Stat_t, mode fs.FileMode, ok bool) {
	at = socket
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrPermission) && at != "/" {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	if err != nil {
		return at, nil, 0, false
	}
	owner, ok = info.Sys().(*syscall.Stat_t)
	return at, owner, info.Mode(), ok
}

// memberOf reports whether the database of groups lists a user in a group. The groups of a running
// session may be older.
func memberOf(of *user.User, gid uint32) bool {
	groups, err := of.GroupIds()
	return err == nil && slices.Contains(groups, strconv.FormatUint(uint64(gid), 10))
}

func groupName(gid uint32) (name string, known bool) {
	number := strconv.FormatUint(uint64(gid), 10)
	if group, err := user.LookupGroupId(number); err == nil {
		return group.Name, true
	}
	return number, false
}

func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if known, err := user.LookupId(number); err == nil {
		return known.Username
	}
	return "user " + number
}
