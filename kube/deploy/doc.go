// Package deploy tests gpuarb's Helm chart, which is in the folder gpuarb. The package is a Go module of its own, because the tests import
// Helm, and Helm needs many modules that neither the daemon nor the plug-ins need.
//
// render.go renders the chart. chart_test.go lints the chart, and checks the rendered objects.
package deploy
