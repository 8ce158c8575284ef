package agent

import (
	"path/filepath"
	"slices"

	"rcd/agent/witness"
)

// witnessDir is where the use of simulated devices is witnessed, below the data
// directory. It outlives every job's record.
const witnessDir = "witness"

// WitnessDir returns where the agent of a data directory has the use of its
// simulated devices witnessed: see witness.Check.
func WitnessDir(dataDir string) string { return filepath.Join(dataDir, witnessDir) }

// witness returns where the use of those of a job's devices is witnessed that are
// simulated, nil if none is.
func (a *agent) witness(j *job) *witness.Place {
	place := witness.Place{Dir: WitnessDir(a.config.DataDir), Inside: j.hold != 0}
	for _, d := range a.config.Devices {
		if d.Simulated && slices.Contains(j.devices, d.Name) {
			place.Devices = append(place.Devices, d.Name)
		}
	}
	if place.Devices == nil {
		return nil
	}
	return &place
}
