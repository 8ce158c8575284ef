// Package wire is on floor 1.
package wire

import (
	_ "example.com/new/thing"        // want "it has no owner"
	_ "github.com/fxamacker/cbor/v2" // want "it belongs to internal/codec"
	_ "golang.org/x/sys/unix"
	_ "pgregory.net/rapid" // want "it belongs to tests"
	_ "rcd/attic"          // want "it has no floor"
	_ "rcd/bench"          // want "only tests import what stands beside"
)
