// Package bench measures what a user waits for, with the real binaries. It
// prints figures with the machine beside them and asserts nothing: bounds of
// time belong here, not in tests.
//
//	go test ./bench -run Wait -bench.runs 20 -v
//	go test ./bench -run BusyHost -bench.host 60s -v
//	go test ./bench -run StartOfRc -bench.rc 50 -v
//
// Start with wait_test.go.
package bench
