package inventory

// This file reads the use of one NVML device. nvml.go translates the answers; nvmlhost.go guards the calls.

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlSource reads one device by UUID, with its present handle.
type nvmlSource struct {
	host *nvmlHost
	uuid string

	mu      sync.Mutex  // guards the fields below
	sampled uint64      // time of the latest sample of utilisation that was read, in µs by the driver's clock
	last    map[int]int // utilisation of the last reading, by PID
}

// usage reports a lost device as Usage.Lost, and makes the library look for the device again.
func (s *nvmlSource) usage() (Usage, error) {
	u, err := s.read()
	if errors.Is(err, errLost) || errors.Is(err, errDown) {
		s.host.renew()
	}
	if errors.Is(err, errLost) {
		return Usage{Lost: true}, nil
	}
	return u, err
}

// read asks for the device's processes.
func (s *nvmlSource) read() (Usage, error) {
	device, err := s.host.beginDeviceCall(s.uuid)
	if err != nil {
		return Usage{}, err
	}
	defer s.host.endCall()
	list, known, err := s.host.optional.processes(device)
	if err == nil && !known && s.host.optional.memory { // without lists of processes, only this call shows that the device is lost
		if _, ret := device.GetMemoryInfo(); !isUnsupported(ret) {
			err = nvmlError("memory", ret)
		}
	}
	if err != nil {
		return Usage{}, err
	}
	return Usage{Processes: list, ProcessesKnown: known}, nil
}

// utilisation returns for each process the larger utilisation of the last two readings, so that a reading between two
// samples of the driver does not show 0. The driver lists busy processes only, and keeps old samples: each reading asks
// for those that are new.
func (s *nvmlSource) utilisation() map[int]int {
	device, err := s.host.beginDeviceCall(s.uuid)
	if err != nil {
		return nil
	}
	defer s.host.endCall()
	if !s.host.optional.utilisation {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sampled = min(s.sampled, uint64(time.Now().UnixMicro())) // it is later if the clock was set back since, or by a defect of the driver
	samples, ret := samplesOf(device, s.sampled)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		return nil
	}
	now, since := make(map[int]int, len(samples)), s.sampled
	for _, p := range samples {
		if ret == nvml.SUCCESS && p.Pid > 0 && p.SmUtil <= 100 && p.TimeStamp > since { // some drivers leave entries of the list unset
			now[int(p.Pid)] = max(now[int(p.Pid)], int(p.SmUtil))
			s.sampled = max(s.sampled, p.TimeStamp)
		}
	}
	both := maps.Clone(now)
	for pid, percent := range s.last {
		both[pid] = max(both[pid], percent)
	}
	s.last = now
	return both
}

// samplesOf asks for the samples after a time. The binding asks the driver twice, for the number and for the list. If
// there are more processes at the second time, the binding panics, because it cuts its list to the new number.
func samplesOf(device nvmlDevice, since uint64) (samples []nvml.ProcessUtilizationSample, ret nvml.Return) {
	defer func() {
		if recover() != nil {
			samples, ret = nil, nvml.ERROR_INSUFFICIENT_SIZE
		}
	}()
	return device.GetProcessUtilization(since)
}
