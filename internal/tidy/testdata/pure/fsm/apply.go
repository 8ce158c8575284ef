package fsm

import (
	_ "log/slog" // want "import of log/slog"
	"maps"
	"math/rand/v2" // want "import of math/rand/v2"
	_ "net"        // want "import of net"
	"os"           // want "import of os"
	"slices"
	"time"

	"rcd/internal/clock" // want "import of rcd/internal/clock"
)

var start = time.Now() // want "time.Now"

func clocks(d time.Duration) {
	time.Sleep(d)         // want "time.Sleep"
	now := time.Now       // want "time.Now"
	_ = time.Since(now()) // want "time.Since"
	<-time.After(d)       // want "time.After"
	_ = time.NewTimer(d)  // want "time.NewTimer"
	_ = time.Local        // want "time.Local"
	_ = clock.Real
	_ = rand.Int()
	_ = os.Args
}

func concurrency(c chan int) {
	go clocks(0) // want "go statement"
	select {     // want "select statement"
	case <-c:
	default:
	}
}

type load float32 // want "type float32" "load has the type rcd/fsm.load"

type row struct {
	share float64 // want "type float64"
}

func floats(r row, n int) int {
	half := 0.5                   // want "an expression of type float64" "half has the type float64"
	_ = r.share                   // want "type float64"
	_ = int(load(n))              // want "type rcd/fsm.load"
	_ = complex(1, 2)             // want "type complex128"
	return int(half * float64(n)) // want "type float64"
}

type set map[string]bool

func order[M ~map[string]bool](m map[int]string, s set, g M) {
	for range m { // want "range over a map"
	}
	for k := range s { // want "range over a map"
		_ = k
	}
	for k := range g { // want "range over a map"
		_ = k
	}
	for k := range maps.Keys(m) { // want "unsorted iteration"
		_ = k
	}
	_ = slices.Collect(maps.Values(m)) // want "unsorted iteration"
}
