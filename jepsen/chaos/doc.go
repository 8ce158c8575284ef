// Package chaos runs the real binaries and breaks things under them: kill -9,
// SIGSTOP, cut ports and links. It checks what a user would see.
//
// It must only ever end processes that it started, by pid, listen on loopback
// only, and leave no files outside the test's temporary folders.
//
// With -chaos.long what the default run shortens has its full length.
//
// Start with Cluster, then survive_test.go.
package chaos
