//go:build never

// Package probe is looked at under every build tag.
package probe

import (
	_ "github.com/NVIDIA/go-nvml/pkg/nvml"
	_ "rcd/session" // want "floor 2 is not below floor 1"
)
