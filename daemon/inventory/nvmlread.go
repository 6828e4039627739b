package inventory

// This file reads what one device of NVML uses. nvml.go has how a device is described; nvmlhost.go guards the calls.

import "errors"

// nvmlSource reads one device, by whatever handle it has now.
type nvmlSource struct {
	host *nvmlHost
	uuid string
}

// usage tells of a lost device that it is, and has the library look for it again.
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

func (s *nvmlSource) read() (Usage, error) {
	device, err := s.host.enter(s.uuid)
	if err != nil {
		return Usage{}, err
	}
	defer s.host.leave()
	list, known, err := s.host.optional.processes(device)
	if err == nil && !known && s.host.optional.memory { // without lists of processes, only this call tells that the device is lost
		if _, ret := device.GetMemoryInfo(); !isUnsupported(ret) {
			err = nvmlError("memory", ret)
		}
	}
	if err != nil {
		return Usage{}, err
	}
	return Usage{Processes: list, ProcessesKnown: known}, nil
}
