// Package selector is the language in which a submitter says which devices
// will do: a comma-separated conjunction such as
//
//	vram>=40G, vendor=nvidia, driver>=550, !broken, rack in (r1,r2)
//
// It must never use a float: every replica has to agree on every comparison,
// so numbers are exact decimals. It knows nothing of devices; the caller gives
// it a way to look a label up.
//
// Start with Parse.
package selector
