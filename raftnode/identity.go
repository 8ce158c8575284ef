package raftnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"rcd/internal/ident"
	"rcd/internal/mux"
)

// ErrIdentity is wrapped by errors about the identity file.
var ErrIdentity = errors.New("identity of the data directory")

const identityFile = "identity.json"

// record is the identity file. The format is frozen by a golden file: fields
// may be added, never changed.
type record struct {
	Version     int               `json:"version"`
	NodeID      string            `json:"node_id"`
	Incarnation string            `json:"incarnation"` // random, of this data directory
	ClusterID   string            `json:"cluster_id"`  // "" until the node is part of one
	Generation  uint64            `json:"generation"`
	Members     map[string]string `json:"members"` // node ID to the incarnation that may speak under it
	// Halted is why nothing in this directory may be used any more. It stands
	// in this file because the directory cannot be used without it.
	Halted string `json:"halted,omitempty"`
	// Level is the highest feature level that this directory's state was seen
	// at, 0 for the first.
	Level uint32 `json:"feature_level,omitempty"`
}

const recordVersion = 1

// Identity is who a data directory is: written once at its first start, and
// again when it becomes part of a cluster. A wiped directory has another
// incarnation and cannot speak, let alone vote, under the old node's ID.
// Methods may be called concurrently.
type Identity struct {
	path string

	mu  sync.Mutex // guards rec and the file
	rec record
}

// LoadIdentity returns the identity in dir, which is made when missing, as is
// the identity. It fails when the directory belongs to another node ID, and
// with ErrHalted when the node was halted for good.
func LoadIdentity(dir, nodeID string) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	id := &Identity{path: filepath.Join(dir, identityFile)}
	data, err := os.ReadFile(id.path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(logPath(dir)); err == nil {
			return nil, fmt.Errorf("%w: %s holds a raft log but no %s: restore that file, or empty the directory and rejoin as a new node",
				ErrIdentity, dir, identityFile)
		}
		id.rec = record{Version: recordVersion, NodeID: nodeID, Incarnation: ident.New(), Members: map[string]string{}}
		return id, id.write(id.rec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if err := json.Unmarshal(data, &id.rec); err != nil {
		return nil, fmt.Errorf("%w: %s is damaged (%w): restore it, or empty the directory and rejoin as a new node", ErrIdentity, id.path, err)
	}
	if id.rec.Version != recordVersion || id.rec.Incarnation == "" {
		return nil, fmt.Errorf("%w: %s has version %d, this build reads %d", ErrIdentity, id.path, id.rec.Version, recordVersion)
	}
	if id.rec.NodeID != nodeID {
		return nil, fmt.Errorf("%w: %s belongs to node %s, not %s: use that ID or another directory", ErrIdentity, dir, id.rec.NodeID, nodeID)
	}
	if id.rec.Halted != "" {
		return nil, fmt.Errorf("%w: %s", ErrHalted, id.rec.Halted)
	}
	return id, nil
}

// halt records, on disk, that nothing in the directory may be used any more.
func (id *Identity) halt(why string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	next := id.rec
	next.Halted = why
	return id.replace(next)
}

// Level returns the highest feature level that the directory's state was seen
// at; 0 means the first.
func (id *Identity) Level() uint32 {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.rec.Level
}

// RaiseLevel records, on disk, that the directory's state is at a feature
// level, so that a build that does not know it is refused before it takes part
// in anything. A lower one than recorded changes nothing.
func (id *Identity) RaiseLevel(level uint32) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if level <= max(id.rec.Level, 1) {
		return nil
	}
	next := id.rec
	next.Level = level
	return id.replace(next)
}

// Self returns the identity for the preface of a stream.
func (id *Identity) Self() mux.Identity {
	id.mu.Lock()
	defer id.mu.Unlock()
	return mux.Identity{
		ClusterID: id.rec.ClusterID, Generation: id.rec.Generation,
		NodeID: id.rec.NodeID, Incarnation: id.rec.Incarnation,
	}
}

// Check refuses a controller whose incarnation is not the one recorded for its
// node ID; it is the Check of mux.Config and mux.Dialer. Cluster and
// generation are compared by mux. Agents and probes pass: the former are no
// members, the latter come before there are any.
func (id *Identity) Check(kind mux.Type, peer mux.Identity) error {
	if kind != mux.Raft && kind != mux.Forward {
		return nil
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	known, ok := id.rec.Members[peer.NodeID]
	if !ok {
		return fmt.Errorf("%s is no member of cluster %s as %s knows it", peer.NodeID, id.rec.ClusterID, id.rec.NodeID)
	}
	if known != peer.Incarnation {
		return fmt.Errorf("%s has another data directory (incarnation %s) than the one that joined (%s): remove it and let it rejoin as a new node",
			peer.NodeID, peer.Incarnation, known)
	}
	return nil
}

// SetMember records, on disk, which incarnation may speak as nodeID; an empty
// one strikes the member out. An error means the file may hold either.
func (id *Identity) SetMember(nodeID, incarnation string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	next := id.rec
	next.Members = maps.Clone(next.Members)
	if incarnation == "" {
		delete(next.Members, nodeID)
	} else {
		next.Members[nodeID] = incarnation
	}
	return id.replace(next)
}

// join records, on disk, that the directory belongs to a cluster.
func (id *Identity) join(clusterID string, generation uint64, members map[string]string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	next := id.rec
	next.ClusterID, next.Generation, next.Members = clusterID, generation, maps.Clone(members)
	return id.replace(next)
}

// replace needs id.mu.
func (id *Identity) replace(next record) error {
	if err := id.write(next); err != nil {
		return err
	}
	id.rec = next
	return nil
}

// write puts the record in place of the file: a crash at any point leaves the
// old one or the new one.
func (id *Identity) write(rec record) error {
	data, err := json.MarshalIndent(rec, "", "  ")
	if err == nil {
		err = WriteFileAtomic(id.path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%w: write %s: %w", ErrIdentity, id.path, err)
	}
	return nil
}

// WriteFileAtomic puts data in place of the file at path, on disk: a crash at any
// point leaves the old content or the new one.
func WriteFileAtomic(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename there is nothing to remove
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
