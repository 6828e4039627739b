package inventory

// This file reads the use of one NVML device. nvml.go translates the answers; nvmlhost.go guards the calls.

import "errors"

// nvmlSource reads one device by UUID, with its present handle.
type nvmlSource struct {
	host *nvmlHost
	uuid string
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
