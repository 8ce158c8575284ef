// Package scheduler decides which queued job gets which free device. It is
// pure: fsm tells it what changed, asks it once per entry, and carries its
// decisions out. Its state can be built again from rows at any time, and what
// it decides depends only on those rows, never on the way they came to be.
//
// It must never read a clock, draw a random number, start a goroutine, use a
// float or range over a map.
//
// The rule is that of a full pass: queued jobs in queue order, each taking the
// best free device that matches it and tolerates its runtime. Best is the one
// with the fewest spare capabilities, which is the number of its effective
// labels beyond those the selector reads, then the smallest ID. Jobs are
// grouped so that a pass looks only at heads of groups that may have become
// placeable; the length of the queue does not show. oracle_test.go holds the
// full pass and compares the two.
//
// Start with Scheduler, then pass.go; labels.go finds the devices of a selector,
// serve.go says what registered devices allow a target, free or not.
package scheduler
