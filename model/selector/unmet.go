package selector

import "slices"

// Unmet returns the keys of the terms that a device does not satisfy, sorted,
// each once; nil when Match is true. get is as in Match. The caller owns the
// slice.
func (s Selector) Unmet(get func(key string) (string, bool)) []string {
	var keys []string
	for i := range s.terms {
		if !s.terms[i].match(get) {
			keys = append(keys, s.terms[i].key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
