package readme

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// This file runs the examples of docs/admin/ci.md for test runners that Debian 12 does not have.

// ciPage is the text of docs/admin/ci.md.
func ciPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/admin/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLauncherOfCMake: the value that the page gives CMake as a launcher starts the tests of a project. CMake
// before 3.29 takes it as CMAKE_CROSSCOMPILING_EMULATOR in the same form: a list of the command
// and its arguments.
//
//	https://cmake.org/cmake/help/latest/variable/CMAKE_TEST_LAUNCHER.html
//	https://cmake.org/cmake/help/latest/policy/CMP0158.html
func TestLauncherOfCMake(t *testing.T) {
	m := regexp.MustCompile("`cmake -D(CMAKE_TEST_LAUNCHER)=(\"[^\"`]+\")`").FindStringSubmatch(ciPage(t))
	if m == nil {
		t.Fatal("docs/admin/ci.md has no launcher for CMake")
	}
	play(t, []step{{page: "admin/ci.md", command: `cd "$(mktemp -d)"
cat >main.c <<'.'
#include <stdlib.h>
int main(void) { return getenv("GPUARB_JOB") == NULL; }
.
cat >CMakeLists.txt <<'.'
cmake_minimum_required(VERSION 3.13)
project(launched C)
enable_testing()
add_executable(launched main.c)
add_test(NAME launched COMMAND launched)
.
launcher=` + m[1] + `
cmake --version | awk 'NR == 1 { split($3, v, "."); exit v[1] * 100 + v[2] >= 329 }' && launcher=CMAKE_CROSSCOMPILING_EMULATOR
cmake -D$launcher=` + m[2] + ` . >log 2>&1 && make >>log || cat log
ctest | grep passed`, want: []string{"100% tests passed, 0 tests failed out of 1"}}})
}

// TestRunnerOfCargo: Cargo and nextest read the page's variable for this machine's
// target, and its value starts a test whose command is appended.
//
//	https://nexte.st/book/target-runners
//	https://doc.rust-lang.org/cargo/reference/config.html#targettriplerunner
func TestRunnerOfCargo(t *testing.T) {
	_, block, _ := strings.Cut(ciPage(t), "```sh\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("docs/admin/ci.md has no commands for nextest")
	}
	play(t, []step{{page: "admin/ci.md", command: `cargo() {
	test "$*" = "nextest run" || { echo "cargo $*"; return; }
	$(printenv "CARGO_TARGET_$(tr a-z- A-Z_ <<<x86_64-unknown-linux-gnu)_RUNNER") sh -c 'echo "in a job: ${GPUARB_JOB:+yes}"' </dev/null
}
` + block, want: []string{"in a job: yes"}}})
}
