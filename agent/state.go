package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
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
