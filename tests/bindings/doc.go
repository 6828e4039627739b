// Package bindings opens jobs of cgroups (gpuarb job) with the real daemon and real cgroups of both versions, and
// runs programs in them. The oracle is the simulated driver's own count, and what programs can still allocate.
package bindings
