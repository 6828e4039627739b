// Package secondwall checks that budgets of cgroups' jobs become limits of the kernel or of the vendor's driver, if
// driver_limits is on. The daemon and the cgroups are real. The kernel's controller dmem is a filesystem of this package
// (dmem_test.go), and the vendor's driver is the simulated NVML of tests/simcuda. Both store limits and hold none. The oracle is
// what they have stored.
package secondwall
