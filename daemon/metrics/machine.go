package metrics

// This file lists all metrics, and has those of the daemon, the queue and the jobs. exporter.go
// calls families; devices.go and users.go have the other metrics.

import (
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// families returns the metrics that are exported.
func (o Options) families() []family {
	all := append(machineFamilies(), deviceFamilies()...)
	all = append(all, queueFamilies()...)
	all = append(all, userFamilies()...)
	if o.Jobs {
		all = append(all, jobFamilies()...)
	}
	return all
}

// machineFamilies returns the metrics of the daemon as a whole.
func machineFamilies() []family {
	stat := func(of func(*figures.Stats) uint64) func(*view, *output) {
		return func(v *view, o *output) { o.value(float64(of(&v.Stats))) }
	}
	return []family{
		gauge("build_info", "The daemon's version; always 1.", []string{"version"},
			func(v *view, o *output) { o.value(1, labelValue(v.Version)) }),
		gauge("jobs", "Jobs, by state.", []string{"state"}, jobs),
		gauge("clients", "Processes that have a session with the daemon.", nil,
			stat(func(s *figures.Stats) uint64 { return s.Clients })),
		counter("jobs_opened_total", "Jobs that were opened.", nil, stat(func(s *figures.Stats) uint64 { return s.TotalJobs })),
		counter("refusals_total", "Refused requests, by reason.", []string{"reason"}, refusals),
		counter("recalled_bytes_total", "Idle credit that was called back for others.", nil,
			stat(func(s *figures.Stats) uint64 { return s.RecalledBytes })),
		counter("reclaimed_leases_total", "Leases of dead processes whose memory came back.", nil,
			stat(func(s *figures.Stats) uint64 { return s.ReclaimedLeases })),
		counter("suspends_total", "Jobs that were asked to give their memory back, or to take it again, by result.", []string{"result"}, suspends),
		counter("clamped_words_total", "Impossible values in lease pages that were corrected.", nil,
			stat(func(s *figures.Stats) uint64 { return s.ClampedWords })),
		counter("malformed_messages_total", "Invalid messages from clients.", nil,
			stat(func(s *figures.Stats) uint64 { return s.Malformed })),
	}
}

func jobs(v *view, o *output) {
	counts := map[figures.State]int{}
	for i := range v.Jobs {
		counts[v.Jobs[i].State]++
	}
	for _, state := range states {
		o.value(float64(counts[state]), string(state))
	}
}

func refusals(v *view, o *output) {
	for _, r := range v.Counts.Refused {
		o.value(float64(r.Count), r.Reason)
	}
}

// suspends writes how often jobs gave their memory back and took it again, or failed to.
func suspends(v *view, o *output) {
	for _, is := range []struct {
		result string
		count  uint64
	}{{"suspended", v.Stats.Suspended}, {"suspend_failed", v.Stats.NotSuspended}, {"resumed", v.Stats.Resumed}, {"stuck", v.Stats.Stuck}} {
		o.value(float64(is.count), is.result)
	}
}

// queueFamilies returns the metrics of waiting requests.
func queueFamilies() []family {
	return []family{
		gauge("queue_length", "Waiting requests, by device; \"any\": those that any of several devices can serve.", deviceLabels,
			queued(func(all float64, _ *figures.TicketState) float64 { return all + 1 })),
		gauge("queue_oldest_seconds", "How long the oldest waiting request has waited; 0 when none waits.", deviceLabels,
			queued(func(all float64, t *figures.TicketState) float64 {
				return max(all, milliseconds(uint64(max(0, t.WaitedMs))))
			})),
		gauge("queue_bytes", "Memory that waiting requests ask for.", deviceLabels,
			queued(func(all float64, t *figures.TicketState) float64 { return all + float64(t.WantsBytes) })),
	}
}

// queued returns a function that outputs a value for each device, and a value for the requests
// that any of several devices can serve. add adds one waiting request to such a value.
func queued(add func(all float64, t *figures.TicketState) float64) func(*view, *output) {
	const anyDevice = -1
	return func(v *view, o *output) {
		of := make(map[int]float64, len(v.Devices)+1)
		for i := range v.Queue {
			t := &v.Queue[i]
			of[t.Device] = add(of[t.Device], t)
		}
		for _, d := range v.Devices {
			o.value(of[d.Index], v.device(d.Index)...)
		}
		o.value(of[anyDevice], v.device(anyDevice)...)
	}
}

// jobFamilies returns the metrics of each job.
func jobFamilies() []family {
	labels := []string{"job_id"}
	return []family{
		gauge("job_info", "User and name of a job; always 1.", appendLabels(labels, "user", "job_name"), jobInfo),
		gauge("job_inside", "The job of a cgroup inside which a job is, and whose memory includes the job's; always 1.", appendLabels(labels, "around"), jobInside),
		gauge("job_memory_bytes", "Memory of a job on a device, by kind.", appendLabels(labels, appendLabels(deviceLabels, "kind")...), jobMemory),
		gauge("job_memory_limit_bytes", "Memory that a job may hold on a device: the lowest of the limits in force; absent without a limit.", appendLabels(labels, deviceLabels...), jobLimit),
		gauge("job_utilization_ratio", "Share of a device's processors that the processes of a job used of late; absent where the device does not tell.",
			appendLabels(labels, deviceLabels...), jobUtilization),
		gauge("job_idle_seconds", "Time since a process of a job last used a device.", appendLabels(labels, deviceLabels...), jobIdle),
		counter("job_pressure_seconds_total", "How long a job waited for memory (some), and how long no thread of it could continue meanwhile (full).",
			appendLabels(labels, "kind"), jobPressure),
	}
}

func jobLabel(j *figures.JobState) string { return strconv.FormatUint(j.ID, 10) }

func jobInfo(v *view, o *output) {
	for i := range v.Jobs {
		j := &v.Jobs[i]
		o.value(1, jobLabel(j), labelValue(j.User), labelValue(j.Name))
	}
}

func jobInside(v *view, o *output) {
	for i := range v.Jobs {
		if j := &v.Jobs[i]; j.Inside != 0 {
			o.value(1, jobLabel(j), strconv.FormatUint(j.Inside, 10))
		}
	}
}

// jobMemory writes the memory of each job on the devices of which it has or had something.
func jobMemory(v *view, o *output) {
	for i := range v.Jobs {
		j := &v.Jobs[i]
		for _, d := range j.Devices {
			if max(d.Used, d.Peak, d.Reserved, d.Unmanaged, d.Suspended) == 0 {
				continue
			}
			labels := appendLabels([]string{jobLabel(j)}, v.device(d.Device)...)
			o.value(float64(d.Used), appendLabels(labels, "used")...)
			o.value(float64(d.Peak), appendLabels(labels, "peak")...)
			o.value(float64(d.Reserved), appendLabels(labels, "reserved")...)
			if j.Residence != "" {
				o.value(float64(d.Suspended), appendLabels(labels, "suspended")...)
			}
			if j.Bound != "" {
				o.value(float64(d.Unmanaged), appendLabels(labels, "unmanaged")...)
			}
		}
	}
}

// jobLimit exports the limit in force of each job: its own, or that of a budget that it shares with others, if
// it is lower.
func jobLimit(v *view, o *output) {
	type jobDevice struct {
		job    uint64
		device int
	}
	shared := map[jobDevice]accounting.Bytes{}
	for _, b := range v.Budgets {
		for _, at := range b.Devices {
			for _, job := range b.Jobs {
				key := jobDevice{job, at.Device}
				if most, ok := shared[key]; at.Max != accounting.Max && (!ok || at.Max < most) {
					shared[key] = at.Max
				}
			}
		}
	}
	for i := range v.Jobs {
		j := &v.Jobs[i]
		for _, d := range j.Devices {
			most := d.Max
			if least, ok := shared[jobDevice{j.ID, d.Device}]; ok {
				most = min(most, least)
			}
			if most != accounting.Max {
				o.value(float64(most), appendLabels([]string{jobLabel(j)}, v.device(d.Device)...)...)
			}
		}
	}
}

func jobPressure(v *view, o *output) {
	for i := range v.Jobs {
		o.pressure(v.Jobs[i].Pressure, []string{jobLabel(&v.Jobs[i])})
	}
}

// Options say which metrics are exported in addition to the usual ones.
type Options struct {
	Jobs bool // the series of each job: as many as there are jobs
}
