package probe

import (
	"fmt"
	"strconv"
	"strings"
)

// CanonicalPCI returns a PCI address as the kernel writes it, such as
// 0000:3b:00.0, false if it is none. The driver writes the domain with eight
// digits and in capitals, and people leave out the domain or the function.
func CanonicalPCI(address string) (string, bool) {
	parts := strings.Split(strings.TrimSpace(address), ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return "", false
	}
	device, function, ok := strings.Cut(parts[2], ".")
	if !ok {
		function = "0"
	}
	var numbers [4]uint64
	for i, part := range []struct {
		text string
		bits int
	}{{parts[0], 32}, {parts[1], 8}, {device, 5}, {function, 3}} {
		n, err := strconv.ParseUint(part.text, 16, part.bits)
		if err != nil {
			return "", false
		}
		numbers[i] = n
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", numbers[0], numbers[1], numbers[2], numbers[3]), true
}
