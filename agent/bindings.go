package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// bindings is which GPU each device is, on disk.
type bindings struct {
	Devices map[string]binding `cbor:"1,keyasint"` // by name
}

// boundDevices returns what was kept, which the caller must not change.
func (s *state) boundDevices() map[string]binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bindings.Devices
}

// bindingsLost reports whether the record could not be read and was set aside,
// and none has taken its place: what is bound now need not be what it was.
func (s *state) bindingsLost() bool {
	path := filepath.Join(s.dir, bindingsFile)
	_, kept := os.Stat(path)
	_, aside := os.Stat(path + ".corrupt")
	return errors.Is(kept, os.ErrNotExist) && aside == nil
}

// keepBindings replaces what is kept.
func (s *state) keepBindings(devices map[string]binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := bindings{Devices: maps.Clone(devices)}
	if err := writeRecord(filepath.Join(s.dir, bindingsFile), kindBindings, next); err != nil {
		return fmt.Errorf("write which GPU each device is: %w", err)
	}
	s.bindings = next
	return nil
}
