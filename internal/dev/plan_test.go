package dev

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAKeptClusterKeepsItsAddressesAndSecrets(t *testing.T) {
	dir := t.TempDir()
	first, err := loadPlan(dir, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range first.Controllers {
		for _, addr := range []string{c.Listen, c.HTTP} {
			if seen[addr] {
				t.Errorf("%s is given twice", addr)
			}
			seen[addr] = true
		}
	}
	again, err := loadPlan(dir, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	if again.join() != first.join() || again.ClusterKey != first.ClusterKey || again.AdminToken != first.AdminToken || again.Devices != 4 {
		t.Errorf("the plan changed from %+v to %+v", first, again)
	}
	info, err := os.Stat(filepath.Join(dir, planFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the secrets has mode %v (%v), want 0600", info.Mode(), err)
	}
}

func TestASecondDevOnOneDirectoryIsRefusedAndEndsNothing(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), Config{DataDir: dir, Controllers: 1, Devices: 1, Stderr: io.Discard}); !errors.Is(err, errRunning) {
		t.Errorf("the second one: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, planFile)); !errors.Is(err, os.ErrNotExist) {
		t.Error("it touched the directory")
	}
	unlock()
	if unlock, err = lock(dir); err != nil {
		t.Errorf("after the first has ended: %v", err)
	} else {
		unlock()
	}
}

func TestAPlanThatMakesNoClusterIsRefused(t *testing.T) {
	for _, n := range []int{0, 2, 4, 7} {
		if _, err := loadPlan(t.TempDir(), n, 1); !errors.Is(err, errControllers) {
			t.Errorf("%d controllers: %v", n, err)
		}
	}
	for _, n := range []int{0, 65} {
		if _, err := loadPlan(t.TempDir(), 1, n); !errors.Is(err, errDevices) {
			t.Errorf("%d devices: %v", n, err)
		}
	}
	dir := t.TempDir()
	if _, err := loadPlan(dir, 3, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPlan(dir, 5, 1); !errors.Is(err, errOtherSize) {
		t.Errorf("a kept cluster of three opened as five: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, planFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPlan(dir, 3, 1); err == nil {
		t.Error("a damaged plan was taken")
	}
}
