// Command render prints the Kubernetes objects of a chart, as `helm template` does. It reads values from its input, as YAML. The cluster of
// kube/e2e has no Helm, and applies these objects.
//
//	render FOLDER <values.yaml
package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/gpuarb/gpuarb/kube/deploy"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("render: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: render FOLDER <VALUES")
	}
	if err := render(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// render prints the objects of the chart in a folder.
func render(folder string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	values, err := common.ReadValues(text)
	if err != nil {
		return err
	}
	files, err := deploy.Render(folder, values)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".yaml" {
			fmt.Printf("---\n%s\n", files[name])
		}
	}
	return nil
}
