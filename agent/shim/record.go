package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/internal/codec"
)

// ErrCorrupt is what a CorruptError is.
var ErrCorrupt = errors.New("corrupt record")

// CorruptError says that a record is there and cannot be read. The job's state is not known; a person has to look at File.
type CorruptError struct {
	File string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: %v: %v; look at the file, then remove its directory", e.File, ErrCorrupt, e.Err)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func (e *CorruptError) Unwrap() error { return e.Err }

// Names in a job's directory.
const (
	specName    = "spec.cbor"
	processName = "process.cbor"
	limitName   = "limit.cbor"
	resultName  = "result.cbor"
	lockName    = "lock"
	socketName  = "sock"
	logName     = "shim.log"
	outputName  = "out"
)

// recordVersion is the format of the records. A reader refuses a later one and must read all earlier ones.
const recordVersion = 1

// Kinds of records. Numbers are on disk.
const (
	kindSpec    = 1
	kindProcess = 2
	kindResult  = 3
	kindLimit   = 4
)

// A record larger than this is none of ours: an environment has at most 64 KiB, a command line at most what the kernel takes.
const recordLimit = 8 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// order is the spec as it lies on disk.
type order struct {
	Spec Spec   `cbor:"1,keyasint"`
	Mark string `cbor:"2,keyasint"` // value of RC_JOB_MARK
	Boot string `cbor:"3,keyasint"` // boot id of the host at Start
}

// processRecord says that the job has begun, and under which processes.
type processRecord struct {
	Boot      string   `cbor:"1,keyasint"`
	Shim      identity `cbor:"2,keyasint"`
	Job       identity `cbor:"3,keyasint"` // zero before the fork, and for a hold
	StartedAt int64    `cbor:"4,keyasint"` // Unix time in ns, 0 before the fork
}

// limitRecord is the limit that the shim ends the job by. It is there before the job begins, and that it is there says that the shim takes extend: one of
// an earlier release has none. It is a file and no field of a status, because an agent of an earlier release refuses a status with a field it does not know.
type limitRecord struct {
	MaxRuntime time.Duration `cbor:"1,keyasint"` // 0: no limit
}

// identity is a proc.ID as it lies on disk.
type identity struct {
	PID   int    `cbor:"1,keyasint"`
	Start uint64 `cbor:"2,keyasint"`
}

func (i identity) id() proc.ID { return proc.ID{PID: i.PID, Start: i.Start} }

func identityOf(id proc.ID) identity { return identity{PID: id.PID, Start: id.Start} }

// encodeRecord wraps v: header, CBOR, CRC-32C of both, big endian.
func encodeRecord(kind uint16, v any) ([]byte, error) {
	body, err := codec.Marshal(v)
	if err != nil {
		return nil, err
	}
	data := codec.Seal(codec.Header{Version: recordVersion, Kind: kind, Flags: codec.FlagMandatory}, body)
	return binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli)), nil
}

func decodeRecord(kind uint16, data []byte, v any) error {
	if len(data) < 4 {
		return fmt.Errorf("%d bytes", len(data))
	}
	sealed := data[:len(data)-4]
	if binary.BigEndian.Uint32(data[len(sealed):]) != crc32.Checksum(sealed, castagnoli) {
		return errors.New("checksum does not match")
	}
	header, body, err := codec.Open(sealed)
	if err != nil {
		return err
	}
	if header.Version != recordVersion || header.Kind != kind {
		return fmt.Errorf("version %d, kind %d; want version %d, kind %d", header.Version, header.Kind, recordVersion, kind)
	}
	return codec.Unmarshal(body, v)
}

// readRecord reads one record of a job's directory into v. os.ErrNotExist if there is none, a *CorruptError if it cannot be understood.
func readRecord(dir, name string, kind uint16, v any) error {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	if info.Size() > recordLimit {
		return &CorruptError{File: path, Err: fmt.Errorf("%d bytes", info.Size())}
	}
	data, err := os.ReadFile(path)
	if Rotten(err) {
		return &CorruptError{File: path, Err: err}
	}
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	if err := decodeRecord(kind, data, v); err != nil {
		return &CorruptError{File: path, Err: err}
	}
	return nil
}

// Rotten tells whether an error of reading a file is the file's own and stays: a bad block, a damaged file system, or something else under its name.
// Others, such as too many open files, say nothing of it.
func Rotten(err error) bool {
	return slices.ContainsFunc([]error{unix.EIO, unix.EISDIR, unix.EUCLEAN, unix.EBADMSG}, func(e error) bool { return errors.Is(err, e) })
}

// How a record comes into place.
type writeMode int

const (
	replace writeMode = iota // takes the place of an earlier one; whole, but not yet safe from a power cut
	durable                  // the same, and safe when the call returns
	once                     // like durable, but os.ErrExist if there is one already
)

// writeRecord writes a record beside its name first, so that a reader sees a whole one or none.
func writeRecord(dir, name string, kind uint16, v any, mode writeMode) error {
	data, err := encodeRecord(kind, v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp, err := os.CreateTemp(dir, name+".*.tmp")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(data)
	if err == nil && mode != replace {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		// A link, unlike a rename, does not push aside what is there.
		if path := filepath.Join(dir, name); mode == once {
			err = os.Link(temp.Name(), path)
		} else {
			err = os.Rename(temp.Name(), path)
		}
	}
	if err == nil && mode != replace {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

func wallTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func wallNS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
