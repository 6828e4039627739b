package doctor

// This file checks the library: it starts the probe with the library, once for each interface, and
// reports which interfaces the library catches. The probe is a program of cshim.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/shim"
)

// api is an interface through which programs use a device.
type api struct {
	name  string // name of the check, and of the interface in the output of the probe
	title string
	file  string // library that programs open
}

var apis = []api{
	{"cuda", "CUDA", "libcuda.so.1"},
	{"nvml", "NVML", "libnvidia-ml.so.1"},
	{"opencl", "OpenCL", "libOpenCL.so.1"},
	{"vulkan", "Vulkan", "libvulkan.so.1"},
}

// checkShim finds the library, starts the probe with it as gpuarb run starts a program, and reports
// what the probe saw of each interface.
func (d *Doctor) checkShim() {
	library, err := shim.FindLibrary(d.Executable, d.Getenv)
	if err != nil {
		d.add("shim", Wrong, "install gpuarb, or name the library with GPUARB_LIB", "%v", err)
		return
	}
	probe, err := shim.FindProbe(d.Executable, d.Getenv)
	if err != nil {
		d.add("shim", Unknown, "install it beside the library: make install", "%s is there; what it catches cannot be tried: %v", library, err)
		return
	}
	defer d.Slow("programs that use CUDA, NVML, OpenCL and Vulkan, which are tried under the library")()
	run := func(name string) probeResult { return d.probe(probe, library, name) }
	if got := run("shim"); got.outcome != "caught" {
		d.add("shim", Wrong, "build or install the library for this machine's libc", "%s does not load: %s",
			library, strings.TrimSpace(got.detail+" "+got.stderr))
		return
	}
	d.add("shim", Fine, "", "%s loads", library)
	if value := d.Getenv("GPUARB_DISABLE"); value != "" && value != "0" {
		d.add("shim", Wrong, "unset GPUARB_DISABLE", "GPUARB_DISABLE=%s: nothing of the programs that are started from here is caught", value)
	}
	answers := make([]probeResult, len(apis))
	var all sync.WaitGroup
	for i, a := range apis {
		all.Go(func() { answers[i] = run(a.name) })
	}
	all.Wait()
	for i, a := range apis {
		d.reportAPI(a, answers[i])
		if a.name == "nvml" {
			d.nvml = answers[i]
		}
	}
	d.checkKernel(answers[0])
}

// reportAPI reports on one interface.
func (d *Doctor) reportAPI(a api, got probeResult) {
	switch got.outcome {
	case "absent":
		d.add(a.name, Fine, "", "%s is not installed (no %s)", a.title, a.file)
	case "caught":
		text := fmt.Sprintf("%s is caught: %s, %s", a.title, got.path, report.Count(got.devices, "device"))
		if got.detail == "" {
			d.add(a.name, Fine, "", "%s", text)
			return
		}
		why, advice := explain(got.detail, "see whether a program that uses "+a.title+" works without gpuarb, and what dmesg says")
		d.add(a.name, Note, advice, "%s; %s", text, why)
	case "not caught":
		d.add(a.name, Wrong, d.adviceFor(a, got), "%s is NOT caught (%s): %s", a.title, got.path, got.detail)
	case "broken":
		why, advice := explain(got.detail, "reinstall it, if programs are to use "+a.title)
		d.add(a.name, Note, advice, "%s cannot be used: %s", a.title, strings.TrimPrefix(got.path+": "+why, ": "))
	default:
		d.add(a.name, Unknown, "try a program that uses "+a.title+" without gpuarb: its driver is likely to do the same there",
			"%s: a program that only looks it up %s", a.title, got.detail)
	}
}

// adviceFor returns what to do if an interface is not caught.
func (d *Doctor) adviceFor(a api, got probeResult) string {
	obstacles := []string{"LD_PRELOAD"}
	if a.name == "vulkan" {
		obstacles = []string{"GPUARB_VULKAN_DISABLE", "VK_LOADER_LAYERS_DISABLE"}
	}
	for _, name := range obstacles {
		if value := d.Getenv(name); value != "" {
			return "try it without " + name + "=" + value
		}
	}
	switch {
	case strings.HasPrefix(got.detail, unknownLayer):
		return "make install puts the layer's manifest where Vulkan's loader looks (share/vulkan/implicit_layer.d below the prefix)"
	case a.name == "vulkan":
		return "see whether vkconfig, or another tool, has set which layers there are"
	}
	return "update gpuarb: until then what programs take there is unmanaged"
}

// unknownLayer begins the answer of the probe if the Vulkan loader finds no manifest of the layer.
const unknownLayer = "the layer is not known"

// nvidiaFolder has the libraries of the driver in container images of NVIDIA and in some clouds.
// The dynamic linker does not always search it.
const nvidiaFolder = "/usr/local/nvidia/lib64"

// checkKernel compares the driver of the kernel with the driver's library.
func (d *Doctor) checkKernel(cuda probeResult) {
	absent := cuda.outcome == "absent"
	if _, err := os.Stat(d.path(nvidiaFolder + "/libcuda.so.1")); err == nil && absent {
		d.add("driver", Wrong, "write the folder into a file of /etc/ld.so.conf.d, run ldconfig and restart gpuarbd; or set LD_LIBRARY_PATH="+nvidiaFolder+
			" for gpuarbd and for all programs", "%s has a libcuda.so.1, and programs do not look there", nvidiaFolder)
		return
	}
	text, err := os.ReadFile(d.path("/proc/driver/nvidia/version"))
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.Join(strings.Fields(strings.TrimPrefix(line, "NVRM version:")), " ")
	switch {
	case err == nil && absent:
		d.add("driver", Wrong, "install the rest of the NVIDIA driver, and run ldconfig", "the kernel has %s, but there is no libcuda.so.1", line)
	case err == nil:
		d.add("driver", Fine, "", "kernel: %s", line)
	case !absent && cuda.devices == 0: // if there are devices, the driver works, but some sandboxes hide it
		d.add("driver", Note, "load it with modprobe nvidia, if this machine has an NVIDIA GPU",
			"there is a libcuda.so.1, but the kernel's NVIDIA driver is not loaded")
	}
}

// probe examines one interface in a process of its own, because its driver may crash or hang.
func (d *Doctor) probe(program, library, name string) probeResult {
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, program, library, name)
	command.Env = d.probeEnviron(library)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.WaitDelay = time.Second // a driver may have started a process that keeps the output open
	ended := make(chan error, 1)
	go func() { ended <- command.Run() }()
	select {
	case err := <-ended:
		got, ok := parseAnswer(stdout.String(), name)
		switch {
		case ctx.Err() != nil:
			return probeResult{detail: fmt.Sprintf("hangs: no answer within %v", d.Timeout)}
		case !ok && err != nil:
			return probeResult{detail: fmt.Sprintf("ends by itself (%v)", err), stderr: strings.TrimSpace(stderr.String())}
		case !ok:
			return probeResult{detail: "gives no answer"}
		}
		got.stderr = strings.TrimSpace(stderr.String())
		return got
	case <-time.After(d.Timeout + 2*command.WaitDelay): // the process is in the kernel, where no signal ends it
		return probeResult{detail: fmt.Sprintf("hangs in the kernel: SIGKILL does not end it within %v", 2*command.WaitDelay)}
	}
}

// probeEnviron returns the environment that gpuarb run gives a program, with the library switched
// on.
func (d *Doctor) probeEnviron(library string) []string {
	base := append(append([]string{}, d.Environ...), "GPUARB_DISABLE=0")
	return shim.Launch{Library: library, Socket: d.socket}.Environ(base)
}

// parseAnswer returns the answer in the output of the probe. It is the last line that begins with
// the name of the interface, because drivers print too.
func parseAnswer(stdout, name string) (probeResult, bool) {
	for _, line := range slices.Backward(strings.Split(stdout, "\n")) {
		fields := strings.Split(line, "\t")
		if len(fields) != 5 || fields[0] != name {
			continue
		}
		devices, err := strconv.Atoi(fields[3])
		return probeResult{outcome: fields[1], path: fields[2], devices: devices, detail: fields[4]}, err == nil
	}
	return probeResult{}, false
}
