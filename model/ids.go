package model

import (
	"strconv"
	"strings"
)

// JobID returns the public ID of job number n, such as "j-48213". IDs of one
// kind sort by age when they are compared by number.
func JobID(n uint64) string { return "j-" + strconv.FormatUint(n, 10) }

// LeaseID returns the public ID of lease number n, such as "l-48220".
func LeaseID(n uint64) string { return "l-" + strconv.FormatUint(n, 10) }

// ParseJobID returns the number in a job ID. Only the canonical form is taken:
// no sign, no leading zero.
func ParseJobID(id string) (uint64, bool) { return parseID(id, "j-") }

func parseID(id, prefix string) (uint64, bool) {
	digits, ok := strings.CutPrefix(id, prefix)
	if !ok || digits == "" || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// DeviceID joins a host and a device name to "host:name".
func DeviceID(host, name string) string { return host + ":" + name }

// SplitDeviceID returns the host and the name of a device ID; the last colon
// splits. Both are empty when there is no colon or a side is empty.
func SplitDeviceID(id string) (host, name string) {
	i := strings.LastIndexByte(id, ':')
	if i <= 0 || i == len(id)-1 {
		return "", ""
	}
	return id[:i], id[i+1:]
}
