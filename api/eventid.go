package api

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// eventID is a place in the event log: an entry and the position of an event
// in it. Every node gives an event the same one, because entries and what
// comes of them are the same everywhere.
type eventID struct {
	index    uint64
	position int
}

// wholeEntry is the position behind all events of an entry.
const wholeEntry = math.MaxInt

// after returns the place behind an entry.
func after(index uint64) eventID { return eventID{index, wholeEntry} }

func (id eventID) compare(other eventID) int {
	return cmp.Or(cmp.Compare(id.index, other.index), cmp.Compare(id.position, other.position))
}

// text is generation-index-position, without the position for the place behind
// an entry. A cluster that was restored counts its entries anew in a new
// generation, where an old place means nothing.
func (id eventID) text(generation uint64) string {
	text := strconv.FormatUint(generation, 10) + "-" + strconv.FormatUint(id.index, 10)
	if id.position == wholeEntry {
		return text
	}
	return text + "-" + strconv.Itoa(id.position)
}

// parseEventID reads what text wrote, or the bare index that Rc-Index holds
// (then of the generation that there is).
func parseEventID(text string, now uint64) (id eventID, generation uint64, ok bool) {
	parts := strings.Split(text, "-")
	numbers := make([]uint64, len(parts))
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 63)
		if err != nil || part[0] == '+' {
			return eventID{}, 0, false
		}
		numbers[i] = n
	}
	switch len(numbers) {
	case 1:
		return after(numbers[0]), now, true
	case 2:
		return after(numbers[1]), numbers[0], true
	case 3:
		return eventID{numbers[1], int(numbers[2])}, numbers[0], true
	}
	return eventID{}, 0, false
}
