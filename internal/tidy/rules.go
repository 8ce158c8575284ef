package tidy

import "strings"

// maxLines is the longest a Go file may be, tests included. Past it, two nouns
// live in one file.
const maxLines = 500

// floors gives each package, relative to the module, its floor. A package
// imports only from lower floors, its tests too. A package that stands neither
// here nor beside is a mistake: its place has not been thought about.
var floors = map[string]int{
	"cmd/rcd": 6, "cmd/rc": 6,
	"controller": 5, "internal/dev": 5,
	"api": 4, "agent": 4,
	"raftnode": 3, "raftnode/inspect": 3, "client": 3, "controller/copies": 3,
	"fsm": 2, "session": 2, "relay": 2, "agent/shim": 2,
	"fsm/command": 1, "scheduler": 1, "wire": 1, "agent/probe": 1, "agent/proc": 1, "agent/spool": 1, "agent/witness": 1,
	"model": 0, "model/selector": 0, "web": 0,
	"internal/codec": 0, "internal/clock": 0, "internal/mux": 0, "internal/ident": 0, "internal/yamlconf": 0,
	"internal/sdnotify": 0, "internal/archive": 0, "internal/backlog": 0,
}

// beside are the packages, with those below them, that stand outside the
// floors: they may import anything, and only tests may import them.
var beside = []string{"jepsen", "bench", "internal/tidy", "scripts"}

// anyone and testsOnly stand in owners for all packages.
const (
	anyone    = "*"
	testsOnly = "tests"
)

// owners gives each third-party module the packages that may import it, so
// that replacing it stays one package's work.
var owners = map[string][]string{
	"github.com/hashicorp/raft":           {"raftnode", "raftnode/inspect"},
	"github.com/hashicorp/raft-boltdb/v2": {"raftnode", "raftnode/inspect"},
	"github.com/hashicorp/memberlist":     {"raftnode"},
	"github.com/hashicorp/go-hclog":       {"raftnode", "raftnode/inspect"},
	"go.etcd.io/bbolt":                    {"raftnode", "raftnode/inspect"},
	"github.com/hashicorp/yamux":          {"session"},
	"github.com/NVIDIA/go-nvml":           {"agent/probe"},
	"github.com/alecthomas/kong":          {"cmd/rc", "cmd/rcd"},
	"github.com/fxamacker/cbor/v2":        {"internal/codec"},
	"github.com/tidwall/btree":            {"fsm", "scheduler"},
	"github.com/google/uuid":              {"internal/ident"},
	"github.com/goccy/go-yaml":            {"internal/yamlconf"},
	"golang.org/x/sys":                    {anyone},
	"pgregory.net/rapid":                  {testsOnly},
	"github.com/rogpeppe/go-internal":     {testsOnly},
	"github.com/anishathalye/porcupine":   {testsOnly},
}

// pure are the packages that every replica must run alike. Only their own
// source is looked at, so what they import has to be judged by its author.
var pure = []string{"fsm", "fsm/command", "scheduler"}

// impureImports are the packages, with those below them, that bring a clock,
// randomness, I/O or the environment into a pure package. reflect and unsafe
// are ways around the other rules.
var impureImports = []string{
	"crypto/rand", "log", "math/rand", "net", "os", "reflect", "syscall", "unsafe",
	"rcd/internal/clock", "rcd/internal/ident",
}

// impureTime are the names of package time that read the clock, wait, or
// depend on the machine's time zone.
var impureTime = map[string]bool{
	"Now": true, "Since": true, "Until": true,
	"Sleep": true, "After": true, "AfterFunc": true, "NewTimer": true, "NewTicker": true, "Tick": true,
	"Local": true, "LoadLocation": true,
}

// below reports whether path is root or a path under it.
func below(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// isBeside reports whether the package stands outside the floors.
func isBeside(path string) bool {
	for _, root := range beside {
		if below(path, root) {
			return true
		}
	}
	return false
}
