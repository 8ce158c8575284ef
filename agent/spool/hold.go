package spool

// Keep tells the Writer that nothing at or behind from may be dropped by the bound. What a reader has still to get then stays, and the spool is larger than
// its bound by that much at the most. A Writer that was not told keeps nothing so.
func (w *Writer) Keep(from int64) { w.kept.floor = from }

// Offer adds as much of p to the output as the disk takes, and returns how much that is; the rest counts for nothing, as if it had never been offered, and
// there is no Gap. The error says why something is left. Offered again, a failing disk is tried again after a while. What Append says of order and
// ownership holds.
func (w *Writer) Offer(stream Stream, p []byte) (int, error) {
	taken := 0
	for taken < len(p) {
		part := p[taken:min(len(p), taken+maxPayload)]
		if err := w.store(stream, part); err != nil {
			return taken, err
		}
		w.count(part)
		w.length += int64(len(part))
		taken += len(part)
	}
	return taken, nil
}
