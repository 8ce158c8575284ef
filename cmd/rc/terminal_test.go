package main

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What wakes a read writes into a pipe. If the read did not wait for that, the
// byte could go to whatever has the pipe's number after it is closed.
func TestAReadThatEndsLeavesNobodyWhoWritesToItsPipe(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	for range 500 {
		i, err := openInput()
		if err != nil {
			t.Fatal(err)
		}
		i.fd = int(zero.Fd())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n, err := i.read(ctx, make([]byte, 8)); n != 0 || err == nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		fds := []unix.PollFd{{Fd: int32(i.wake[0]), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n != 1 || err != nil {
			t.Fatalf("the read has ended, and its pipe has yet to be written to (%v)", err)
		}
		i.close()
	}
}
