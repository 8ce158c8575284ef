// Package attic has no place.
package attic // want "has no floor"

import _ "rcd/raftnode"
