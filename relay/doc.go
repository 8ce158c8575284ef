// Package relay carries a job's bytes from the host that has them to whoever
// reads them, over links that break. The same frames (wire.Frame) travel on
// every hop: agent to leader, leader to follower, controller to client.
//
// It must never deliver a byte twice, out of order or after a hole that was
// not announced as a gap; never end a stream before its End; never let a slow
// reader cost anybody else more than one window of memory; and never judge a
// job: a broken link says nothing about the job behind it.
//
// Start with Record, Source and Sink in record.go, then Send and Receive (one
// link), Follow (many links, one after the other), Conduit (a relaying
// node in the middle). DESIGN.md says why it is built this way.
package relay
