// Package yamlconf reads the YAML files that people write, and writes YAML for
// people who ask for it. It must never be used between our own processes,
// which speak the encodings of package codec and JSON; and it must never pass
// over a mistake in silence where a mistake would cost something, so Decode
// refuses what it does not know and says on which line it stands.
//
// Start with yamlconf.go, which reads; encode.go writes and edit.go changes one
// key of a file.
package yamlconf
