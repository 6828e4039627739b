package inventory

// This file reads the use of one NVML device. nvml.go translates the answers; nvmlhost.go guards the calls.

import (
	"errors"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlSource reads one device by UUID, with its present handle.
type nvmlSource struct {
	host *nvmlHost
	uuid string

	mu      sync.Mutex // guards the field below
	sampled [2]uint64  // times of the latest samples of utilisation in the last two readings that had some, the later one first; in µs
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

// utilisation returns the mean utilisation by each process since the reading before the last one, so that a reading
// between two samples of the driver does not show 0. The driver lists busy processes only.
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
	samples, ret := samplesOf(device, s.sampled[1])
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		return nil
	}
	byPID, latest := make(map[int]int, len(samples)), s.sampled[0]
	for _, p := range samples {
		if ret == nvml.SUCCESS && p.Pid > 0 && p.SmUtil <= 100 { // some drivers leave entries of the list unset
			byPID[int(p.Pid)] = max(byPID[int(p.Pid)], int(p.SmUtil))
			latest = max(latest, p.TimeStamp)
		}
	}
	if latest > s.sampled[0] {
		s.sampled = [2]uint64{latest, s.sampled[0]}
	}
	return byPID
}

// samplesOf asks for the samples after a time. The binding asks twice, for the number and for the list. If processes
// came meanwhile, it panics, because it cuts its list to the new number.
func samplesOf(device nvmlDevice, since uint64) (samples []nvml.ProcessUtilizationSample, ret nvml.Return) {
	defer func() {
		if recover() != nil {
			samples, ret = nil, nvml.ERROR_INSUFFICIENT_SIZE
		}
	}()
	return device.GetProcessUtilization(since)
}
