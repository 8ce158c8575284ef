package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rcd/agent/spool"
)

// A job ends when its result is on disk, and it may have filled the disk itself. So the room for that is taken before it begins: files under other names,
// which are written over in place and renamed. What a neighbour writes meanwhile cannot take it. A file system that never writes in place (btrfs) may
// refuse all the same; then the end waits for somebody to make room.

// roomSuffix is added to a record's name.
const roomSuffix = ".room"

// rooms are the files that are written at the end, with what they may take. A result that names more survivors than fit waits for room.
var rooms = map[string]int64{resultName: 16 << 10, causeName: 1 << 10, outputName: 4 << 10}

// takeRoom takes the room for what is written at the end.
func takeRoom(dir string) error {
	for name, size := range rooms {
		if err := takeFile(filepath.Join(dir, name+roomSuffix), size); err != nil {
			return fmt.Errorf("take room for %s: %w", name, err)
		}
	}
	return nil
}

// takeFile makes a file of that size, or leaves the one that is there. It has its name only once it is whole, and a link, unlike a rename, does not push
// aside one that is being written over.
func takeFile(path string, size int64) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	if err = allocate(temp, size); err == nil {
		err = os.Link(temp.Name(), path)
	}
	if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	return err
}

func allocate(f *os.File, size int64) error {
	for {
		switch err := unix.Fallocate(int(f.Fd()), 0, 0, size); {
		case err == unix.EINTR:
		case err == unix.EOPNOTSUPP || err == unix.ENOSYS:
			_, err = f.Write(make([]byte, size))
			return err
		default:
			return err
		}
	}
}

// giveRoomBack drops what was not needed.
func giveRoomBack(dir string) {
	for name := range rooms {
		_ = os.Remove(filepath.Join(dir, name+roomSuffix))
	}
}

// closeOutput ends the spool. A disk that has refused output may have no room for the record of that either; the spool does not write over in place, so
// what is kept for it is freed, and a neighbour may be faster.
func closeOutput(dir string, w *spool.Writer) error {
	err := w.Close()
	if isFull(err) && os.Remove(filepath.Join(dir, outputName+roomSuffix)) == nil {
		err = w.Close()
	}
	return err
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// writeLast is a durable writeRecord that a full disk does not keep from its room. A job of an earlier release has none.
func writeLast(dir, name string, kind uint16, v any) error {
	err := writeRecord(dir, name, kind, v, durable)
	if !isFull(err) {
		return err
	}
	data, encodeErr := encodeRecord(kind, v)
	if encodeErr != nil {
		return err
	}
	if inRoom := writeInRoom(dir, name, data); inRoom != nil {
		return fmt.Errorf("%w; in the room kept for it: %w", err, inRoom)
	}
	return nil
}

// writeInRoom may be cut off and repeated: the record has its name only once it is whole.
func writeInRoom(dir, name string, data []byte) error {
	path := filepath.Join(dir, name+roomSuffix)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(path, filepath.Join(dir, name))
	}
	if err == nil {
		err = syncDir(dir)
	}
	return err
}
