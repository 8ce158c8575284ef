package rig

// Withhold keeps what a job prints from now on from everybody, as a host does
// that dies with bytes nobody has read. Release gives it.
func (h *Host) Withhold(job uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[job]; j != nil {
		j.held, j.given = true, len(j.output)
	}
}

// Release takes a Withhold back.
func (h *Host) Release(job uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[job]; j != nil {
		j.held = false
		j.wake()
	}
}

// Damage takes a range of a job's output away, as a disk does that turns a bit.
func (h *Host) Damage(job uint64, from, to int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[job]; j != nil {
		j.hole = [2]int{from, to}
	}
}
