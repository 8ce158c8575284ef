package copies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	headerName    = "copy.json"
	headerVersion = 1
	tempSuffix    = ".tmp"
)

// header is a copy's file beside its segments: a line of JSON, and one with its CRC-32C in hex. Version 1 is frozen: a later one only adds.
type header struct {
	Version    int    `json:"version"`
	Cluster    string `json:"cluster"`
	Generation uint64 `json:"generation"`
	Job        uint64 `json:"job"`
	Lease      uint64 `json:"lease"`
	// Complete: there is nothing more to fetch. The rest is zero without.
	Complete bool   `json:"complete,omitempty"`
	Length   int64  `json:"length,omitempty"`
	Digest   string `json:"digest,omitempty"` // as the job's end stated it
	// DiskBytes is the size of the segments together, so that one that a power cut has shortened is seen without reading it.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	Gaps      bool  `json:"gaps,omitempty"` // some of it is not there
	EndedMS   int64 `json:"ended_ms,omitempty"`
}

func readHeader(dir string) (header, error) {
	raw, err := os.ReadFile(filepath.Join(dir, headerName))
	if err != nil {
		return header{}, err
	}
	text, sum, _ := bytes.Cut(raw, []byte("\n"))
	if string(sum) != sumOf(text) {
		return header{}, fmt.Errorf("header of copy %q: %w", dir, ErrDamaged)
	}
	var h header
	if err := json.Unmarshal(text, &h); err != nil {
		return header{}, fmt.Errorf("header of copy %q: %w", dir, err)
	}
	if h.Version != headerVersion {
		return header{}, fmt.Errorf("header of copy %q: version %d is not known", dir, h.Version)
	}
	return h, nil
}

// write puts the header in place of the file.
func (h header) write(dir string) error {
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, headerName)
	if err := os.WriteFile(path+tempSuffix, slices.Concat(raw, []byte("\n"+sumOf(raw))), 0o600); err != nil {
		return err
	}
	return os.Rename(path+tempSuffix, path)
}

// sumOf returns the line that follows a header's text.
func sumOf(text []byte) string {
	return fmt.Sprintf("%08x\n", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
}

// segmentBytes sums the segments of a spool.
func segmentBytes(dir string) (total int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".seg") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}
