package controller

// verdictGate keeps verdicts and admissions apart: a sweep is collected and
// applied while no agent is being taken in, and the other way round. It is made
// of channels so that a virtual clock goes on while somebody waits at it.
type verdictGate struct {
	inside chan int      // holds how many are being taken in, unless a sweep holds it
	left   chan struct{} // holds one: somebody has left
}

func newVerdictGate() *verdictGate {
	g := &verdictGate{inside: make(chan int, 1), left: make(chan struct{}, 1)}
	g.inside <- 0
	return g
}

// enter waits for a sweep in flight and keeps the next one off until leave.
func (g *verdictGate) enter() { g.inside <- <-g.inside + 1 }

// leave ends what enter began.
func (g *verdictGate) leave() {
	g.inside <- <-g.inside - 1
	select {
	case g.left <- struct{}{}:
	default:
	}
}

// shut waits until nobody is being taken in and keeps everybody out until
// open. Only one goroutine shuts.
func (g *verdictGate) shut() {
	for {
		n := <-g.inside
		if n == 0 {
			return
		}
		g.inside <- n
		<-g.left
	}
}

// open ends what shut began.
func (g *verdictGate) open() { g.inside <- 0 }
