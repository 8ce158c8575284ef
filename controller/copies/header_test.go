package copies

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// The file is read by every later build.
func TestTheHeaderIsFrozen(t *testing.T) {
	full := header{Version: 1, Cluster: "c", Generation: 2, Job: 3, Lease: 4, Complete: true, Length: 5, Digest: "d6", DiskBytes: 7, Gaps: true, EndedMS: 8}
	for text, h := range map[string]header{
		`{"version":1,"cluster":"c","generation":2,"job":3,"lease":4,"complete":true,"length":5,"digest":"d6","disk_bytes":7,"gaps":true,"ended_ms":8}` + "\n3906b053\n": full,
		`{"version":1,"cluster":"c","generation":2,"job":3,"lease":4}` + "\n8ce661f6\n":                                                                                  {Version: 1, Cluster: "c", Generation: 2, Job: 3, Lease: 4},
	} {
		dir := t.TempDir()
		if err := h.write(dir); err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(filepath.Join(dir, headerName)); err != nil || string(raw) != text {
			t.Errorf("written %s, want %s (%v)", raw, text, err)
		}
		if got, err := readHeader(dir); err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("read %+v, %v", got, err)
		}
	}
	dir := t.TempDir()
	if err := (header{Version: 2}).write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := readHeader(dir); err == nil {
		t.Error("a version that is not known is read")
	}
}
