// Package inspect reads Raft's log entry by entry, of a running node or of a
// data directory at rest, for people and for tests. It needs no leader and
// never writes: it must not create, lock for writing or repair a file.
//
// It knows entries, not commands; who has the vocabulary makes summaries of
// Entry.Data. Start with Entries.
package inspect
