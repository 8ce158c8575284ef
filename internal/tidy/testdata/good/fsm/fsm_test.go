package fsm

import (
	"math/rand"
	"os"
	"time"
)

func free(m map[int]int) float64 {
	go func() { _ = os.Args }()
	for range m {
		time.Sleep(1)
	}
	return rand.Float64() * float64(time.Now().Unix())
}
