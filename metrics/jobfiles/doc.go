// Package jobfiles keeps the folder in which NVIDIA's dcgm-exporter looks up the jobs of a GPU (--hpc-job-mapping-dir): a file for each
// GPU, named by its index, with the name of a job on each line. The daemon calls it, where the configuration names a folder.
//
// dcgm-exporter (internal/pkg/transformation/hpc.go there) takes every file whose name is a number, gives up a whole round where one that it has
// listed cannot be opened, and makes a copy of each metric for each line. So files are replaced by renaming, stay when they are empty, and have no line twice: jobs are named by
// their numbers, since users may give one name to several.
package jobfiles
