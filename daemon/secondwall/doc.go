// Package secondwall hands the budgets of cgroups' jobs to the kernel or to the vendor's driver, as hard limits. A program
// that runs past the library is then held too. The kernel has the cgroup controller dmem for that (dmem.go), and NVIDIA's
// driver has limits by cgroup from release 615 on, which are set through NVML.
//
// The main type is Walls. The daemon says which limit each cgroup should have on a device, and Settle writes what differs.
// daemon/driverlimits.go calls it. The package decides nothing about budgets.
//
// A limit is never raised above the original limit, which is put back when the job closes. The original limit is in a file
// (statefile.Wall) before the first write, so that the next daemon can put it back after a crash. The steps are:
//
//  1. Read the limit in force, and the inode number of the cgroup's folder.
//  2. Record both, and commit the record.
//  3. Announce the new limit in the record.
//  4. Write the new limit.
//  5. Read the limit in force. The kernel ignores a limit below the bytes in use.
//  6. Confirm the limit in force in the record.
//
// If the limit in force is neither the last nor the announced limit, another program has set it. It becomes the original
// limit, and is lowered again if it is higher than the budget allows. The original limit is put back in the same steps, and
// the record is freed at the end. If the folder is gone, or was made again, its limit is gone too.
//
// Locking: calls of Settle for different devices may be concurrent, because a driver may hang. For one device there is at
// most one call at a time. A lock guards the table of records.
package secondwall
