package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTimersWaitInEitherClock(t *testing.T) {
	for name, c := range map[string]Clock{"real": Real(), "skewed": Skewed(-time.Hour)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := c.Now()
				timer := c.NewTimer(time.Minute)
				<-timer.C()
				if got := c.Now().Sub(start); got != time.Minute {
					t.Fatalf("waited %v", got)
				}
				timer.Reset(time.Second)
				if !timer.Stop() {
					t.Fatal("a running timer was not stopped")
				}
				time.Sleep(time.Hour)
				select {
				case <-timer.C():
					t.Fatal("a stopped timer fired")
				default:
				}
			})
		})
	}
}

func TestSkewMovesTheWallClockOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Skewed(-time.Hour)
		if got := Real().Now().Sub(c.Now()); got != time.Hour {
			t.Fatalf("skew %v", got)
		}
	})
}
