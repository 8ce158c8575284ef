package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestConduitGivesWhatItTookInOrder(t *testing.T) {
	for _, window := range []int{1, 500, DefaultWindow} {
		synctest.Test(t, func(t *testing.T) {
			recorded := newTape(rand.New(rand.NewPCG(21, uint64(window))), 2000)
			c := NewConduit(window)
			go func() {
				source := recorded.open(0)
				for {
					r, err := source.Next(t.Context())
					if err != nil || c.Take(t.Context(), r) != nil {
						t.Error("the writer failed")
						return
					}
					if _, isEnd := r.(End); isEnd {
						return
					}
				}
			}()
			sink := &deck{}
			for {
				r, err := c.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_ = sink.Take(t.Context(), r)
				if _, isEnd := r.(End); isEnd {
					break
				}
			}
			sink.check(t, recorded, 0)
			if c.held != 0 || len(c.queue) != 0 {
				t.Errorf("%d charged for %d records in an empty conduit", c.held, len(c.queue))
			}
		})
	}
}

func TestConduitHoldsNoMoreThanItsWindow(t *testing.T) {
	for name, piece := range map[string]func(i int64) Record{
		"data": func(i int64) Record { return Data{Offset: i * 100, Stream: 1, Bytes: make([]byte, 100)} },
		"gaps": func(i int64) Record { return Gap{From: i * 100, To: i*100 + 100} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const window = 10_000
				c := NewConduit(window)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				i := int64(0)
				for ; c.Take(ctx, piece(i)) == nil; i++ {
				}
				if c.held > window || c.held < window/2 {
					t.Errorf("holds %d of a window of %d", c.held, window)
				}
				// The one that did not fit was not taken: the next is its turn.
				drained := int64(0)
				for drained < i*100 {
					r, err := c.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					_, drained = r.span()
				}
				if err := c.Take(t.Context(), piece(i)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestConduitFailsOnlyOnceItIsEmpty(t *testing.T) {
	first := errors.New("first")
	c := NewConduit(0)
	_ = c.Take(t.Context(), line(0, 1, "kept"))
	c.Fail(first)
	c.Fail(errors.New("second"))
	if r, err := c.Next(t.Context()); err != nil || string(r.(Data).Bytes) != "kept" {
		t.Fatalf("%v, %v", r, err)
	}
	if _, err := c.Next(t.Context()); err != first {
		t.Fatal(err)
	}
}

func TestConduitWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		c := NewConduit(0)
		if _, err := c.Next(ctx); err != gone {
			t.Error(err)
		}
	})
}

func TestConduitKeepsNoMemoryOfTheWriters(t *testing.T) {
	c := NewConduit(0)
	text := []byte("original")
	_ = c.Take(t.Context(), Data{Stream: 1, Bytes: text})
	copy(text, "scribble")
	r, err := c.Next(t.Context())
	if err != nil || string(r.(Data).Bytes) != "original" {
		t.Fatalf("%s, %v", r.(Data).Bytes, err)
	}
}
