package agent

import "sync"

// gpus is which GPU each device of the host is.
type gpus struct {
	mu    sync.Mutex // guards what follows
	uuids map[string]string
}

// uuid returns the UUID of the GPU, or of the MIG instance, that a device is;
// "" when it is none, or it is not known which.
func (g *gpus) uuid(device string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.uuids[device]
}

// device returns the device that a GPU or a MIG instance is, "" when it is none.
func (g *gpus) device(uuid string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for device, u := range g.uuids {
		if u == uuid {
			return device
		}
	}
	return ""
}
