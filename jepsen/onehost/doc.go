// Package onehost is a controller and its device host in one, for tests of
// clients: it has the device box:gpu0 and runs pipe jobs as processes of this
// machine, with real bytes in and out.
//
// It must end only processes that it started, and knows no rule of the real
// lease table beyond who holds the one device. Start with New.
package onehost
