// Package slurm runs jobs under Slurm's own slurmctld, slurmd and munged, with the plug-in, Prolog and Epilog of slurm/ and a
// daemon over the simulated driver. Users submit jobs with sbatch and srun. The oracle is the simulated driver's count
// of what their programs hold. `make test-slurm` runs it.
package slurm
