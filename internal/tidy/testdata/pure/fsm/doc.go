// Package fsm breaks every rule of a replicated state machine.
package fsm
