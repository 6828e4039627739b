// Package deploy has gpuarb's Helm chart, in the folder gpuarb, and its tests. It is a Go module of its own, because Helm brings modules
// that neither the daemon nor the plug-ins need.
//
// render.go renders the chart. chart_test.go lints it, and checks what it renders.
package deploy
