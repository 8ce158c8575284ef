package session_test

import (
	_ "github.com/hashicorp/raft" // want "it belongs to raftnode"
	_ "pgregory.net/rapid"
	_ "rcd/jepsen/sim"
	_ "rcd/raftnode" // want "floor 3 is not below floor 2"
	_ "rcd/session"
)
