package bounded

import "os/exec"

// This file hides an installed gpuarb from a command, for tests whose result must not depend on the host.

// Bare changes a command so that it sees no installed gpuarb and no daemon of the host:
// it runs in a mount namespace in which these places are empty. The caller must be root.
func Bare(cmd *exec.Cmd) *exec.Cmd {
	const script = `for dir in /run/gpuarb /usr/lib/gpuarb /usr/lib/*/gpuarb /usr/local/lib/gpuarb; do
		if [ -d "$dir" ]; then mount -t tmpfs tmpfs "$dir" || exit 99; fi
	done
	exec "$@"`
	unshare, err := exec.LookPath("unshare")
	cmd.Err = err
	cmd.Args = append([]string{"unshare", "--mount", "sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = unshare
	return cmd
}
