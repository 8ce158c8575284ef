// Package session is on floor 2.
package session

import (
	_ "github.com/hashicorp/yamux"
	_ "rcd/model"
	_ "rcd/relay" // want "floor 2 is not below floor 2"
)
