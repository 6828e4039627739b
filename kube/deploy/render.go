package deploy

// This file renders the chart as `helm template` does: it turns templates and values into the text of Kubernetes objects. It is
// called by chart_test.go, and by the command in the folder render.

import (
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// Cluster is the version of Kubernetes for which Render renders the chart.
var Cluster = common.KubeVersion{Version: "v1.37.2", Major: "1", Minor: "37"}

// Render returns the text of each file that a first installation of the chart renders, by the file's name. folder has the chart. The
// values in set replace those of values.yaml.
func Render(folder string, set map[string]any) (map[string]string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "gpuarb", Namespace: "gpuarb", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, set, release, &common.Capabilities{KubeVersion: Cluster})
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}
