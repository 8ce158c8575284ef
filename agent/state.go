package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"rcd/agent/shim"
	"rcd/internal/codec"
	"rcd/wire"
)

// errCorrupt says that a file of the data directory cannot be read.
var errCorrupt = errors.New("corrupt record")

// Names in the data directory.
const (
	fenceFile   = "fence.cbor"
	clusterFile = "cluster.cbor"
	faultsFile  = "faults.cbor"
	jobsDir     = "jobs"

	bindingsFile = "bindings.cbor"
)

// Kinds of records, on disk: append only.
const (
	kindFence   = 1
	kindCluster = 2
	kindOutcome = 3
	kindFaults  = 4

	kindBindings = 5
)

const recordVersion = 1

// fence is what keeps a lease from being started twice or after a later one.
// It outlives every job's record.
type fence struct {
	// Begun is the highest lease begun for each device, by name.
	Begun map[string]uint64 `cbor:"1,keyasint"`
}

// cluster is what the agent knows of its controllers.
type cluster struct {
	ClusterID   string            `cbor:"1,keyasint"`
	Generation  uint64            `cbor:"2,keyasint"` // highest seen, with Term
	Term        uint64            `cbor:"3,keyasint"`
	Index       uint64            `cbor:"4,keyasint"` // as of the last write
	Controllers []wire.Controller `cbor:"5,keyasint"`
}

// faults is what nobody has acked yet.
type faults struct {
	Details map[string]string `cbor:"1,keyasint"` // by device
}

// state is the durable state of an agent. All methods may be called
// concurrently; those that change something return once it is on disk.
type state struct {
	dir string

	mu      sync.Mutex // guards what follows, and the files
	fence   fence
	cluster cluster
	faults  faults

	bindings bindings
	raised   raised
}

// openState reads the state of a data directory. A file that cannot be read is
// set aside and named in problems: it must not keep the host from its jobs.
// fenceLost says that the fence is to be rebuilt from the jobs' records.
func openState(dir string) (s *state, fenceLost bool, problems []error, err error) {
	s = &state{dir: dir, fence: fence{Begun: map[string]uint64{}}}
	for _, file := range []struct {
		name string
		kind uint16
		into any
	}{{fenceFile, kindFence, &s.fence}, {clusterFile, kindCluster, &s.cluster}, {faultsFile, kindFaults, &s.faults}, {bindingsFile, kindBindings, &s.bindings}} {
		err := readRecord(filepath.Join(dir, file.name), file.kind, file.into)
		switch {
		case err == nil, errors.Is(err, os.ErrNotExist):
		case errors.Is(err, errCorrupt):
			problems = append(problems, err)
			path := filepath.Join(dir, file.name)
			if err := os.Rename(path, path+".corrupt"); err != nil {
				return nil, false, nil, fmt.Errorf("set a corrupt file aside: %w", err)
			}
			switch file.kind {
			case kindFence:
				s.fence, fenceLost = fence{}, true
			case kindCluster:
				s.cluster = cluster{}
			case kindFaults:
				s.faults = faults{}
			case kindBindings:
				s.bindings = bindings{}
			}
		default:
			return nil, false, nil, err
		}
	}
	if s.fence.Begun == nil {
		s.fence.Begun = map[string]uint64{}
	}
	return s, fenceLost, problems, nil
}

// begun returns the highest lease begun for a device.
func (s *state) begun(device string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fence.Begun[device]
}

// begunDevices returns the names of all devices on which a lease has begun, in the
// order of their numbers.
func (s *state) begunDevices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.fence.Begun), byNumber)
}

// fenceVerdict says whether a lease may still begin.
type fenceVerdict int

const (
	fenceOpen  fenceVerdict = iota // above everything begun
	fenceBegun                     // begun already, on one of the devices at least
	fenceStale                     // a later lease has begun
)

// look compares a lease with what its devices have begun.
func (s *state) look(devices []string, lease uint64) fenceVerdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookLocked(devices, lease)
}

func (s *state) lookLocked(devices []string, lease uint64) fenceVerdict {
	verdict := fenceOpen
	for _, d := range devices {
		switch begun := s.fence.Begun[d]; {
		case lease < begun:
			return fenceStale
		case lease == begun:
			verdict = fenceBegun
		}
	}
	return verdict
}

// begin raises the fence of the devices to lease, if it is open. With
// fenceOpen and no error the lease is this caller's alone to start.
func (s *state) begin(devices []string, lease uint64) (fenceVerdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.lookLocked(devices, lease); v != fenceOpen {
		return v, nil
	}
	next := fence{Begun: make(map[string]uint64, len(s.fence.Begun)+1)}
	for d, l := range s.fence.Begun {
		next.Begun[d] = l
	}
	for _, d := range devices {
		next.Begun[d] = lease
	}
	if err := writeRecord(filepath.Join(s.dir, fenceFile), kindFence, next); err != nil {
		return fenceOpen, fmt.Errorf("write fence: %w", err)
	}
	s.fence = next
	return fenceOpen, nil
}

// raise is begin for leases that are known to have begun. After an error the
// fence is that high for as long as this process runs.
func (s *state) raise(devices []string, lease uint64) error {
	s.mu.Lock()
	var low []string
	for _, d := range devices {
		if s.fence.Begun[d] < lease {
			low = append(low, d)
		}
	}
	s.mu.Unlock()
	if len(low) == 0 {
		return nil
	}
	_, err := s.begin(low, lease)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fence.Begun = maps.Clone(s.fence.Begun)
		for _, d := range low {
			s.fence.Begun[d] = max(s.fence.Begun[d], lease)
		}
	}
	return err
}

// unbegin lowers the fence below a lease that is known not to have begun. After
// an error it is lower for as long as this process runs, or until a lease begins.
func (s *state) unbegin(lease uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, lower := fence{Begun: make(map[string]uint64, len(s.fence.Begun))}, false
	for d, l := range s.fence.Begun {
		if l == lease {
			l, lower = lease-1, true
		}
		next.Begun[d] = l
	}
	if !lower {
		return nil
	}
	s.fence = next
	if err := writeRecord(filepath.Join(s.dir, fenceFile), kindFence, next); err != nil {
		return fmt.Errorf("write fence: %w", err)
	}
	return nil
}

// facts returns what is known of the cluster.
func (s *state) facts() cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

// update changes the cluster's facts. With durable unset the change is only
// remembered, and written with the next one that is.
func (s *state) update(durable bool, change func(*cluster)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.cluster
	change(&next)
	if durable {
		if err := writeRecord(filepath.Join(s.dir, clusterFile), kindCluster, next); err != nil {
			return fmt.Errorf("write cluster facts: %w", err)
		}
	}
	s.cluster = next
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crcSize is the length of the checksum that ends a record: CRC-32C over
// header and body, big-endian.
const crcSize = 4

func writeRecord(path string, kind uint16, v any) error {
	body, err := codec.Marshal(v)
	if err != nil {
		return err
	}
	data := codec.Seal(codec.Header{Version: recordVersion, Kind: kind, Flags: codec.FlagMandatory}, body)
	return writeDurably(path, binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli)))
}

// readRecord reads a record into v. The error wraps os.ErrNotExist or
// errCorrupt, the latter with the file's name.
func readRecord(path string, kind uint16, v any) error {
	corrupt := func(why string) error { return fmt.Errorf("%w: %s: %s", errCorrupt, path, why) }
	data, err := os.ReadFile(path)
	if shim.Rotten(err) {
		return corrupt(err.Error())
	}
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	if len(data) < crcSize {
		return corrupt("too short")
	}
	sealed, sum := data[:len(data)-crcSize], binary.BigEndian.Uint32(data[len(data)-crcSize:])
	if crc32.Checksum(sealed, castagnoli) != sum {
		return corrupt("checksum does not match")
	}
	header, body, err := codec.Open(sealed)
	if err != nil {
		return corrupt(err.Error())
	}
	if header.Kind != kind || header.Version != recordVersion {
		return corrupt(fmt.Sprintf("kind %d version %d, want kind %d version %d", header.Kind, header.Version, kind, recordVersion))
	}
	if err := codec.Unmarshal(body, v); err != nil {
		return corrupt(err.Error())
	}
	return nil
}

// writeDurably replaces a file: whole, and safe from a power cut when it
// returns.
func writeDurably(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // gone already if all went well
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
