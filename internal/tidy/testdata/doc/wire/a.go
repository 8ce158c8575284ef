// Package wire has two files and nowhere to start.
package wire // want "has 2 files and no doc.go"
