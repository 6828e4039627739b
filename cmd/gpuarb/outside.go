package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ids are those of whoever starts a program.
type ids struct {
	uid, gid int
	bound    bool // no-new-privs: no program gives more rights
}

func ourIDs() ids {
	bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return ids{uid: os.Getuid(), gid: os.Getgid(), bound: err == nil && bound == 1}
}

// gainsRights says whether the kernel gives a program rights that its user lacks. The
// loader then takes LD_PRELOAD out of its environment, and so the library is neither in
// it nor in what it starts.
func gainsRights(program string, who ids) bool {
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

// everywhere is the loader's list of what it preloads into all programs, these too.
const everywhere = "/etc/ld.so.preload"

// isListed says whether the list has the library.
func isListed(list, library string) bool {
	text, err := os.ReadFile(list)
	return err == nil && strings.Contains(string(text), library)
}

// cleaners are set-user-ID programs that start another program with a new environment, also when root runs them. Each has its
// short and its long options that take a value.
var cleaners = map[string]struct{ short, long string }{
	"sudo":   {"CDghpRrTtUu", " --chdir --chroot --close-from --command-timeout --group --host --other-user --prompt --role --type --user "},
	"doas":   {"aCu", ""},
	"pkexec": {"", " --user "},
}

// warnOutside warns if a program will run without the library, outside the job that was opened for it, and says what to write
// instead. args are the program's arguments, its name first.
func (a *app) warnOutside(program string, args []string) {
	name := filepath.Base(program)
	_, cleans := cleaners[name]
	switch {
	case gainsRights(program, ourIDs()) && !isListed(everywhere, "libgpuarb.so"):
		a.say("%s runs with rights that you lack, so that the loader drops the library: neither it nor what it starts is held to any limit; %s", name, inside(os.Args, args))
	case cleans && setsUserID(program) && !isListed(everywhere, "libgpuarb.so"):
		a.say("%s gives its program an environment without the library: what it starts is not held to any limit; %s", name, inside(os.Args, args))
	}
}

// setsUserID reports whether a program is started as its owner.
func setsUserID(program string) bool {
	info, err := os.Stat(program)
	return err == nil && info.Mode()&fs.ModeSetuid != 0
}

// inside returns the advice to write gpuarb behind the first program of a command line, instead of before it: "write: sudo gpuarb
// run -- COMMAND". whole is gpuarb's command line, which ends with args.
func inside(whole, args []string) string {
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

// commandAt returns the index in args, the arguments of a program in cleaners, of the command that the program starts; 0: not known.
func commandAt(name string, args []string) int {
	options, known := cleaners[name]
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
				i++ // its value; one that takes a value and is not the last letter has it in the same argument
			}
		case name == "sudo" && strings.Contains(arg, "="): // a variable
		default:
			return i
		}
	}
	return 0
}
