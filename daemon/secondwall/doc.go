// Package secondwall sets hard limits on the device memory of cgroups, in the kernel or in the vendor's driver. They also hold
// programs that bypass the library. The kernel has the cgroup controller dmem for such limits (dmem.go). NVIDIA's driver has
// limits by cgroup from release 615 on, which are set through NVML (nvml.go).
//
// The main type is Walls (walls.go). Its caller, daemon/driverlimits.go, derives from the budgets which limit each cgroup should
// have on a device. Settle compares these targets with the limits in force, and writes the limits that differ.
//
// A limit is never raised above the original limit: the limit that the cgroup had before this package wrote one. The original
// limit is put back when the job closes. It is recorded in a file (statefile.Wall) before the first write, so that the next daemon can
// put it back after a crash. The steps are:
//
//  1. Read the limit in force, and the inode number of the cgroup's folder.
//  2. Record both, and commit the record.
//  3. Announce the new limit in the record.
//  4. Write the new limit.
//  5. Read the limit in force. The kernel ignores a limit below the bytes in use.
//  6. Confirm the limit in force in the record.
//
// If the limit in force is neither the confirmed nor the announced limit, another program has set it. It becomes the original
// limit, and is lowered again if it is above the target. To put the original limit back, the package announces and writes it,
// and reads the limit in force. If that is the original limit, the record is freed. If not, the next call of Settle tries again. If the
// folder was removed, or removed and made again, its limit is gone, and only the record is freed.
//
// Locking: calls of Settle for different devices may be concurrent, because a driver may hang. For one device there is at
// most one call at a time, and only that call reads and writes the content of the device's records. A lock guards the table of records.
package secondwall
