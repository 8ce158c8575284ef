// Package raftnode owns raft and its stores, and not what is merely called alike.
package raftnode

import (
	_ "github.com/hashicorp/raft"
	_ "github.com/hashicorp/raft-boltdb/v2"
	_ "github.com/hashicorp/raft-wal" // want "it has no owner"
)
