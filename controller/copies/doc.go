// Package copies keeps one controller's copies of jobs' output on its disk, so that output outlives the host that it was made on.
//
// A copy is a directory named by the job's number: a spool (package agent/spool, the same records, gaps and rule of what is kept) and a header that
// says whose it is and, once the copy is complete, how much there is. Whoever copies holds a Writing, one at a time for each copy; any number of
// Sources read it meanwhile.
//
// It must never wait for the disk beyond the write itself: Raft's log is on the same disk, so nothing is ever synced. What a power cut takes is seen
// (a torn record, a header that does not fit its segments, a hole) and is fetched again from another controller or the host; the promise stands on there
// being several copies, not on one disk. And it must never take a disk that others need: past its limit the oldest copies of finished jobs go, and
// below the watermark of free space nothing is written.
//
// Start with Store.Begin and Store.Open.
package copies
