// Package session is above all of the others.
package session

import (
	_ "rcd/fsm/command"
	_ "rcd/model"
)
