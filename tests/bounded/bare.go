package bounded

import "os/exec"

// Bare has a command run where no gpuarb is installed and none of its daemons answers,
// whatever the machine has: in a mount namespace with nothing in these places. It takes root.
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
