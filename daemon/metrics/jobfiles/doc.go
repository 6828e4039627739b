// Package jobfiles writes the files in which NVIDIA's dcgm-exporter looks up the jobs of a GPU
// (--hpc-job-mapping-dir). There is a file for each GPU, named by its index, with a job on each
// line. The main type is Folder. The daemon calls it if the configuration names a folder, from one
// goroutine at a time.
//
// dcgm-exporter (internal/pkg/transformation/hpc.go) reads every file whose name is a number. If it
// cannot open a file that it has listed, it exports no jobs at all that time. It makes a copy of
// each metric for each line. So files are replaced by renaming, stay when they are empty, and have
// no line twice. Jobs are named by number, because users may give several jobs the same name. The
// package never deletes the file of a GPU.
package jobfiles
