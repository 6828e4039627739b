package deploy_test

// This file tests the chart: it renders the chart as `helm install` does, and reads the objects strictly: an unknown field is an error. It
// also runs the shell commands of the daemon's pod with files of the test.

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gpuarb/gpuarb/kube/deploy"
)

// values has values that an administrator sets in `helm install`, by their names in values.yaml.
type values = map[string]any

// objects returns the objects of all rendered files.
func objects(t *testing.T, set values) (found []runtime.Object) {
	t.Helper()
	files, err := deploy.Render("gpuarb", set)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for part := range strings.SplitSeq(text, "\n---\n") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			object, _, err := decoder.Decode([]byte(part), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, part)
			}
			found = append(found, object)
		}
	}
	return found
}

// of returns the rendered objects of the type T by their names, without the prefix "gpuarb-".
func of[T runtime.Object](t *testing.T, set values) map[string]T {
	t.Helper()
	found := map[string]T{}
	for _, object := range objects(t, set) {
		if one, is := object.(T); is {
			name := reflect.ValueOf(object).Elem().FieldByName("Name").String()
			found[strings.TrimPrefix(name, "gpuarb-")] = one
		}
	}
	return found
}

// TestLint lints the chart with its defaults, and with both plug-ins switched off.
func TestLint(t *testing.T) {
	for _, set := range []values{{}, {"nri": values{"enabled": false}, "dra": values{"enabled": false}}} {
		result := lint.RunAll("gpuarb", set, "gpuarb", lint.WithKubeVersion(&deploy.Cluster))
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Error(m)
			}
		}
	}
}

// TestParts checks which DaemonSets the chart renders if a plug-in is switched off.
func TestParts(t *testing.T) {
	for _, test := range []struct {
		set  values
		want []string
	}{
		{values{}, []string{"daemon", "dra", "nri"}},
		{values{"nri": values{"enabled": false}}, []string{"daemon", "dra"}},
		{values{"dra": values{"enabled": false}}, []string{"daemon", "nri"}},
	} {
		var names []string
		for name := range of[*appsv1.DaemonSet](t, test.set) {
			names = append(names, name)
		}
		if slices.Sort(names); !slices.Equal(names, test.want) {
			t.Errorf("%v: there are %v", test.set, names)
		}
	}
}

// rights has what the pods of one DaemonSet may do. TestLeastPrivilege itself has the rights that all pods share.
type rights struct {
	token        bool                // whether the pod has a token for the API server
	capabilities []corev1.Capability // capabilities of the container gpuarbd
	paths        []string            // paths of the node; "r:" before a path: the pod cannot write there
}

// allowed has the rights that each DaemonSet may have.
var allowed = map[string]rights{
	"daemon": {capabilities: []corev1.Capability{"SYS_PTRACE", "DAC_READ_SEARCH", "NET_ADMIN", "KILL", "SETUID", "SETGID", "CHOWN", "NET_BIND_SERVICE", "SYS_ADMIN", "SETPCAP"},
		paths: []string{"/run/gpuarb", "/var/lib/gpuarb", "/opt/gpuarb", "/var/run/cdi", "r:/sys/fs/cgroup"}},
	"nri": {token: true, paths: []string{"r:/run/gpuarb/client", "/run/gpuarb/nri", "r:/var/run/cdi", "/var/run/nri"}},
	"dra": {token: true, paths: []string{"r:/run/gpuarb/client", "/var/run/cdi", "/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins/gpu.gpuarb.dev"}},
}

// TestLeastPrivilege checks that each pod has the rights in allowed and no others. All pods use the node's PID namespace and network.
func TestLeastPrivilege(t *testing.T) {
	for name, set := range of[*appsv1.DaemonSet](t, nil) {
		pod, want := set.Spec.Template.Spec, allowed[name]
		if !pod.HostPID || pod.HostIPC || !pod.HostNetwork || pod.HostUsers != nil {
			t.Errorf("%s: PID %v, IPC %v, network %v, users %v", name, pod.HostPID, pod.HostIPC, pod.HostNetwork, pod.HostUsers)
		}
		if token := pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken; token != want.token || token && pod.ServiceAccountName == "" {
			t.Errorf("%s: token %v of account %q", name, token, pod.ServiceAccountName)
		}
		if got := paths(pod); !slices.Equal(got, want.paths) {
			t.Errorf("%s uses %q of the node, want %q", name, got, want.paths)
		}
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			s := c.SecurityContext
			var add []corev1.Capability
			if c.Name == "gpuarbd" {
				add = want.capabilities
			} else if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.AppArmorProfile != nil {
				t.Errorf("%s/%s may escalate its privileges, or has no AppArmor", name, c.Name)
			}
			if s.Privileged != nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, add) {
				t.Errorf("%s/%s: privileged %v, capabilities %+v", name, c.Name, s.Privileged, s.Capabilities)
			}
			if s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s/%s: root %v, seccomp %v", name, c.Name, s.ReadOnlyRootFilesystem, s.SeccompProfile)
			}
		}
	}
}

// paths returns the paths of the node that a pod mounts, in the order of its volumes. "r:" stands before a path that is only mounted
// read-only, and "propagated:" before a volume whose mounts the node would see.
func paths(pod corev1.PodSpec) (found []string) {
	for _, v := range pod.Volumes {
		if v.HostPath == nil {
			continue
		}
		write := "r:"
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			for _, m := range c.VolumeMounts {
				if m.Name == v.Name && !m.ReadOnly {
					write = ""
				}
				if m.MountPropagation != nil {
					found = append(found, "propagated:"+v.Name)
				}
			}
		}
		found = append(found, write+v.HostPath.Path)
	}
	return found
}

// TestRoles checks which objects of the API server the plug-ins may read and write.
func TestRoles(t *testing.T) {
	read := []string{"get"}
	want := map[string][]rbacv1.PolicyRule{
		"gpuarb-nri": {{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: read}},
		"gpuarb-dra": {{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: read},
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read}},
	}
	roles := of[*rbacv1.ClusterRole](t, nil)
	for name, rules := range want {
		if role := roles[name]; role == nil || !reflect.DeepEqual(role.Rules, rules) {
			t.Errorf("%s: %+v", name, role)
		}
	}
	if len(roles) != len(want) || len(of[*rbacv1.Role](t, nil)) != 0 {
		t.Errorf("there are roles %v", roles)
	}
	for name, binding := range of[*rbacv1.ClusterRoleBinding](t, nil) {
		if s := binding.Subjects; binding.RoleRef.Name != "gpuarb-"+name || len(s) != 1 || s[0].Name != name || s[0].Namespace != "gpuarb" {
			t.Errorf("%s binds %+v to %+v", name, binding.RoleRef, s)
		}
	}
}

// TestUpgrade checks how an upgrade of the chart replaces pods: the new pod of the chart starts before the old pod ends, and waits for a
// lock on the node. It also checks that the API server accepts the upgrade, and that a changed configuration restarts the daemon.
func TestUpgrade(t *testing.T) {
	next := of[*appsv1.DaemonSet](t, values{"image": values{"tag": "0.2.0"}, "daemon": values{"config": "schema_version = 1\n[privacy]\n"}})
	for name, set := range of[*appsv1.DaemonSet](t, nil) {
		update := set.Spec.UpdateStrategy
		if update.Type != appsv1.RollingUpdateDaemonSetStrategyType || update.RollingUpdate.MaxUnavailable.IntValue() != 0 || update.RollingUpdate.MaxSurge.IntValue() != 1 {
			t.Errorf("%s is updated by %+v", name, update)
		}
		if command := strings.Join(set.Spec.Template.Spec.Containers[0].Command, " "); !strings.Contains(command, "flock --no-fork /") {
			t.Errorf("%s does not wait for its lock: %q", name, command)
		}
		if !reflect.DeepEqual(set.Spec.Selector, next[name].Spec.Selector) {
			t.Errorf("%s has another selector after an upgrade, which the API server refuses", name)
		}
		for key, value := range set.Spec.Selector.MatchLabels {
			if set.Spec.Template.Labels[key] != value {
				t.Errorf("%s does not select its own pods: %s", name, key)
			}
		}
		for _, c := range set.Spec.Template.Spec.Containers {
			if len(c.Ports) > 0 {
				t.Errorf("%s has a port, which two pods of a node cannot share", name)
			}
		}
	}
	const key = "gpuarb.dev/config"
	if before := of[*appsv1.DaemonSet](t, nil)["daemon"].Spec.Template.Annotations[key]; before == "" || before == next["daemon"].Spec.Template.Annotations[key] {
		t.Error("a change of the configuration does not restart the daemon")
	}
}

// installation is a rendered command of the chart that copies the files of the image onto a node.
type installation struct {
	image, node string   // folders of the test in place of the image's /usr and the node's /opt/gpuarb
	cdi         string   // file to which the installed bin/gpuarb appends its arguments
	command     []string // the command of the container "install", with these folders
}

// installed has the paths of the files in the image, below /usr.
var installed = []string{"bin/gpuarb", "lib/gpuarb/libgpuarb.so", "lib/gpuarb/container/ld.so.preload", "lib/gpuarb/no-exports/vulkan/gpuarb_layer.json"}

// newInstallation makes the files of an image. Each of them is a script that takes the place of the command gpuarb.
func newInstallation(t *testing.T) installation {
	t.Helper()
	dir := t.TempDir()
	i := installation{image: filepath.Join(dir, "image"), node: filepath.Join(dir, "opt/gpuarb"), cdi: filepath.Join(dir, "cdi")}
	for _, name := range installed {
		path := filepath.Join(i.image, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$@\" >>"+i.cdi+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	i.command = slices.Clone(of[*appsv1.DaemonSet](t, values{"programs": i.node})["daemon"].Spec.Template.Spec.InitContainers[0].Command)
	last := &i.command[len(i.command)-1]
	*last = strings.ReplaceAll(*last, "/usr", i.image)
	return i
}

// inodes returns the inode numbers of the installed files and of two of their folders. The files stay open, so that no new file gets the
// number of an old one.
func (i installation) inodes(t *testing.T) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	for _, name := range append(slices.Clone(installed), "lib/gpuarb", "lib/gpuarb/container") {
		file, err := os.Open(filepath.Join(i.node, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		var s unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &s); err != nil {
			t.Fatal(err)
		}
		found[name] = s.Ino
	}
	return found
}

// TestInstallReplacesFiles runs the installation twice. The second run must replace each file by a new file, because programs have the old
// files mapped. It must keep the folders, because containers have them mounted.
func TestInstallReplacesFiles(t *testing.T) {
	i := newInstallation(t)
	run := func() map[string]uint64 {
		if output, err := exec.Command(i.command[0], i.command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return i.inodes(t)
	}
	before := run()
	for name, now := range run() {
		if folder := !slices.Contains(installed, name); (now == before[name]) != folder {
			t.Errorf("%s has inode %d, and had %d", name, now, before[name])
		}
	}
	if text, err := os.ReadFile(i.cdi); err != nil || string(text) != strings.Repeat("cdi generate --output /var/run/cdi/gpuarb.json\n", 2) {
		t.Errorf("the command was run with %q (%v)", text, err)
	}
}

// TestInstallFails runs the installation while find, cp or mv fails, in part or always. The installation must fail before it runs the
// installed command, so that the daemon does not start when a part of the library is missing.
func TestInstallFails(t *testing.T) {
	for script, name := range map[string]string{
		"/usr/bin/find \"$@\"; case $* in *d) exit 1; esac":      "find",
		"case $* in *f) exit 1; esac; exec /usr/bin/find \"$@\"": "find",
		"case $1 in *preload) exit 1; esac; exec /bin/cp \"$@\"": "cp",
		"exit 1": "mv",
	} {
		i := newInstallation(t)
		bin := t.TempDir()
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		run := exec.Command(i.command[0], i.command[1:]...)
		run.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
		if output, err := run.CombinedOutput(); err == nil {
			t.Errorf("%s fails (%s), and the installation succeeds: %s", name, script, output)
		}
		if text, err := os.ReadFile(i.cdi); err == nil {
			t.Errorf("%s fails (%s), and the command is run with %q", name, script, text)
		}
	}
}

// TestDaemonOfANodeWithV2 runs the command of the daemon's container with scripts in place of nsenter and setpriv. The scripts print their
// arguments. The first run is on a node without cgroup v2, the second on a node with cgroup v2, where the container must enter the node's
// cgroup namespace.
func TestDaemonOfANodeWithV2(t *testing.T) {
	command := slices.Clone(of[*appsv1.DaemonSet](t, nil)["daemon"].Spec.Template.Spec.Containers[0].Command)
	dir := t.TempDir()
	for _, name := range []string{"nsenter", "setpriv"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+name+" \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command[len(command)-1] = strings.ReplaceAll(command[len(command)-1], "/sys/fs/cgroup", dir)
	const daemon = "setpriv --bounding-set=-sys_admin,-setpcap --inh-caps=-sys_admin,-setpcap --no-new-privs -- flock --no-fork /run/gpuarb/pod.lock gpuarbd --mount none\n"
	for _, want := range []string{daemon, "nsenter --cgroup=/proc/1/ns/cgroup -- " + daemon} {
		run := exec.Command(command[0], command[1:]...)
		run.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
		if output, err := run.CombinedOutput(); err != nil || string(output) != want {
			t.Errorf("the container runs %q (%v), want %q", output, err, want)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFlags checks that values become flags of the plug-ins, and that empty values become no flags.
func TestFlags(t *testing.T) {
	set := values{"nri": values{"max": "4Gi", "resources": []any{"nvidia.com/gpumem=1Mi"}}, "dra": values{"max": "16Gi", "expectedShares": 3}}
	for name, want := range map[string][]string{"nri": {"--max=4Gi", "--resource=nvidia.com/gpumem=1Mi"}, "dra": {"--max=16Gi", "--expected-shares=3"}} {
		command := of[*appsv1.DaemonSet](t, set)[name].Spec.Template.Spec.Containers[0].Command
		for _, flag := range want {
			if !slices.Contains(command, flag) {
				t.Errorf("%s has no %s: %q", name, flag, command)
			}
		}
		without := of[*appsv1.DaemonSet](t, nil)[name].Spec.Template.Spec.Containers[0].Command
		if slices.ContainsFunc(without, func(flag string) bool {
			return strings.HasPrefix(flag, "--max") || strings.HasPrefix(flag, "--resource=")
		}) {
			t.Errorf("%s has flags that no value asks for: %q", name, without)
		}
	}
}

// TestKubeletFolder renders the chart for nodes whose kubelet has another folder. The driver must put its sockets there and use nothing of
// the default folder. Its pod must see each folder of the node at the node's path, because the kubelet reads the paths of the sockets.
func TestKubeletFolder(t *testing.T) {
	const folder = "/var/snap/kubelet"
	pod := of[*appsv1.DaemonSet](t, values{"dra": values{"kubelet": folder}})["dra"].Spec.Template.Spec
	if got := paths(pod); !slices.Contains(got, folder+"/plugins_registry") || !slices.Contains(got, folder+"/plugins/gpu.gpuarb.dev") {
		t.Errorf("the driver uses %q of the node", got)
	}
	text := strings.Join(pod.Containers[0].Command, " ")
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.HostPath.Path != m.MountPath {
				t.Errorf("%s of the node is at %s, and the kubelet looks for the socket at the node's path", v.HostPath.Path, m.MountPath)
			}
		}
		text += " " + m.MountPath
	}
	if !strings.Contains(text, "--kubelet-dir="+folder+" ") || strings.Contains(text, "/var/lib/kubelet") {
		t.Errorf("the driver runs with %q", text)
	}
}

// TestWrongValues checks that the chart refuses wrong values and unknown names before anything is installed. The message names the value.
func TestWrongValues(t *testing.T) {
	for want, set := range map[string]values{
		"daemom":              {"daemom": values{}},
		"/nri/max":            {"nri": values{"max": "4 GB"}},
		"/nri/resources/0":    {"nri": values{"resources": []any{"nvidia.com/gpumem"}}},
		"/nri/index":          {"nri": values{"index": "5"}},
		"/dra/gpu":            {"dra": values{"gpu": "nvidia.com/gpu"}},
		"/dra/expectedShares": {"dra": values{"expectedShares": 0}},
		"/dra/kubelet":        {"dra": values{"kubelet": "kubelet/"}},
		"/programs":           {"programs": "opt/gpuarb"},
		"/daemon/config":      {"daemon": values{"config": "[defaults]\n"}},
		"/image/pullPolicy":   {"image": values{"pullPolicy": "Sometimes"}},
		"privileged":          {"daemon": values{"privileged": true}},
	} {
		if _, err := deploy.Render("gpuarb", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", set, err)
		}
	}
}

// TestNotes checks that the notes have the commands and the settings of the runtime that an administrator needs, and that the pods have the
// annotation that the notes name.
func TestNotes(t *testing.T) {
	files, err := deploy.Render("gpuarb", values{"tolerateAnnotation": "example.org/tolerate"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`required_plugins = ["gpuarb"]`, `tolerate_missing_plugins_annotation = "example.org/tolerate"`, "rollout status daemonset/gpuarb-daemon"} {
		if !strings.Contains(files["gpuarb/templates/NOTES.txt"], want) {
			t.Errorf("the notes lack %s", want)
		}
	}
	for name, set := range of[*appsv1.DaemonSet](t, values{"tolerateAnnotation": "example.org/tolerate"}) {
		if set.Spec.Template.Annotations["example.org/tolerate"] != "true" {
			t.Errorf("pods of %s do not start while the plug-in is away", name)
		}
	}
}
