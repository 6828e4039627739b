package shim

// This file finds and changes variables in an environment. launch.go, visible.go and vulkan.go choose the variables.
// cmd/gpuarb and cmd/gpuarbd call LookupEnv.

import (
	"slices"
	"strings"
)

// LookupEnv returns the last value of name in an environment, as os.LookupEnv would.
func LookupEnv(environ []string, name string) (value string, set bool) {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func getenv(env []string, name string) string {
	value, _ := LookupEnv(env, name)
	return value
}

// setenv removes all values of name from env, and adds one.
func setenv(env []string, name, value string) []string {
	return append(unsetenv(env, name), name+"="+value)
}

func unsetenv(env []string, name string) []string {
	return slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}
