// Package sim stands beside the floors.
package sim

import (
	_ "github.com/hashicorp/raft"
	_ "rcd/raftnode"
)
