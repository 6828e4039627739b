// Package contrib drives what gpuarb has for other people's tools: the pytest plug-in of contrib/pytest with a real pytest, the
// program of docs/reference/go-client.md, and the unit of docs/admin/notify.md. The oracle is what the tests in testdata do, and what pytest itself reports.
package contrib
