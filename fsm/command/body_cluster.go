package command

// FeatureRaise makes a feature level the cluster's. It needs every member's
// word.
type FeatureRaise struct {
	Level uint32 `cbor:"1,keyasint"`
	// Members are the IDs of all controllers that the proposer's Raft
	// configuration names, voters or not: each must have spoken. Without them
	// only those on record are asked.
	Members []string `cbor:"2,keyasint"`
}

// MemberPut records a controller and its word about the feature levels it
// knows.
type MemberPut struct {
	ID          string `cbor:"1,keyasint"`
	Incarnation string `cbor:"2,keyasint"` // of its data directory
	Supports    uint32 `cbor:"3,keyasint"` // highest feature level it knows
	Build       string `cbor:"4,keyasint"` // for people
}

// MemberRemove forgets a controller.
type MemberRemove struct {
	ID string `cbor:"1,keyasint"`
}

// DigestReport is the digest of one voter at the index of a checkpoint.
type DigestReport struct {
	Node   string `cbor:"1,keyasint"`
	Digest []byte `cbor:"2,keyasint"` // 16 bytes
}

// Checkpoint carries what the voters hold at one index.
type Checkpoint struct {
	Index   uint64         `cbor:"1,keyasint"`
	Voters  uint32         `cbor:"2,keyasint"` // a majority is more than half of these
	Reports []DigestReport `cbor:"3,keyasint"` // sorted by node; those that could be had
}
