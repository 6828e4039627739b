package main

// This file warns if the program of `gpuarb run` will run without the library, such as a
// set-user-ID program, and says what to write instead. exec.go and supervise.go call it before the
// program starts.

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/container"
	"golang.org/x/sys/unix"
)

// identity is the user and group that start a program.
type identity struct {
	uid, gid int
	bound    bool // no-new-privs is set: no program gives more privileges
}

func ownIdentity() identity {
	bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return identity{uid: os.Getuid(), gid: os.Getgid(), bound: err == nil && bound == 1}
}

// gainsPrivileges reports whether the kernel gives a program privileges that its user lacks. If so,
// the loader removes LD_PRELOAD from the environment. Then neither the program nor any program that
// it starts has the library.
func gainsPrivileges(program string, who identity) bool {
	info, err := os.Stat(program)
	if err != nil || who.bound {
		return false
	}
	var at unix.Statfs_t
	if err := unix.Statfs(program, &at); err != nil || at.Flags&unix.ST_NOSUID != 0 {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if info.Mode()&fs.ModeSetuid != 0 && int(owner.Uid) != who.uid ||
		info.Mode()&fs.ModeSetgid != 0 && int(owner.Gid) != who.gid {
		return true
	}
	_, err = unix.Getxattr(program, "security.capability", nil)
	return err == nil && who.uid != 0
}

// preloadFile is the list of libraries that the loader adds to all programs, privileged ones
// included.
const preloadFile = "/etc/ld.so.preload"

// listsLibrary reports whether the file names the library.
func listsLibrary(list, library string) bool {
	text, err := os.ReadFile(list)
	return err == nil && strings.Contains(string(text), library)
}

// environmentCleaners are set-user-ID programs that start another program with a new environment,
// also when root runs them. Each has its short options that take a value, and its long ones.
var environmentCleaners = map[string]struct{ short, long string }{
	"sudo":   {"CDghpRrTtUu", " --chdir --chroot --close-from --command-timeout --group --host --other-user --prompt --role --type --user "},
	"doas":   {"aCu", ""},
	"pkexec": {"", " --user "},
}

// warnOutside warns if a program will run without the library, and so outside its job, and says
// what to write instead. args are the arguments of the program, beginning with its name. environ is
// its environment.
func (a *app) warnOutside(program string, args, environ []string) {
	name := filepath.Base(program)
	_, cleans := environmentCleaners[name]
	switch {
	case container.StartsContainer(args):
		a.adviseFlags(environ, name, args)
	case gainsPrivileges(program, ownIdentity()) && !listsLibrary(preloadFile, "libgpuarb.so"):
		a.say("%s runs with rights that you lack, so that the loader drops the library: neither it nor what it starts is held to any limit; %s", name, adviceInside(os.Args, args))
	case cleans && isSetuid(program) && !listsLibrary(preloadFile, "libgpuarb.so"):
		a.say("%s gives its program an environment without the library: what it starts is not held to any limit; %s", name, adviceInside(os.Args, args))
	}
}

// isSetuid reports whether the program runs as its owner.
func isSetuid(program string) bool {
	info, err := os.Stat(program)
	return err == nil && info.Mode()&fs.ModeSetuid != 0
}

// adviceInside returns the advice to put gpuarb after the first program of a command line instead
// of before it: "write: sudo gpuarb run -- COMMAND". whole is the command line of gpuarb, which
// ends with args.
func adviceInside(whole, args []string) string {
	name := filepath.Base(args[0])
	own := slices.Concat([]string{"gpuarb"}, whole[1:len(whole)-len(args)])
	if own[len(own)-1] != "--" {
		own = append(own, "--")
	}
	at := commandAt(name, args)
	if at == 0 {
		return fmt.Sprintf("put gpuarb behind it: %s … %s COMMAND", name, commandLine(own...))
	}
	return "write: " + commandLine(slices.Concat(args[:at], own, args[at:])...)
}

// commandAt returns the index in args of the command that a program of environmentCleaners starts;
// 0: unknown.
func commandAt(name string, args []string) int {
	options, known := environmentCleaners[name]
	if !known {
		return 0
	}
	for i := 1; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--":
			return (i + 1) % len(args)
		case strings.HasPrefix(arg, "--"):
			if strings.Contains(options.long, " "+arg+" ") {
				i++
			}
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			if strings.IndexAny(arg[1:], options.short) == len(arg)-2 {
				// skip the value of the option; if the letter of the option is not the last, its
				// value follows in the same argument
				i++
			}
		case name == "sudo" && strings.Contains(arg, "="): // an assignment of a variable
		default:
			return i
		}
	}
	return 0
}
