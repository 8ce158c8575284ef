// Package model is on floor 0.
package model

import _ "rcd/wire" // want "floor 1 is not below floor 0"
