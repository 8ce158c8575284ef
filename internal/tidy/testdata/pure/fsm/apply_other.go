//go:build never

package fsm // want "a build tag makes replicas differ"
