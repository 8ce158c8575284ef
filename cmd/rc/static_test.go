package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// With cgo the resolver and the user database of the system's C library would
// be linked, and rc would not start on a host with another one.
func TestRcIsOneStaticBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere programs are linked to the system's library, static or not")
	}
	path := filepath.Join(t.TempDir(), "rc")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs %v, error %v", libraries, err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("it has an interpreter, so it is linked at its start")
		}
	}
}
