package main

import pb "berth.io/plugin/v1"

// node is what the plugin keeps of one node: cpu is in thousandths of a core.
type node struct {
	name                   string
	generation             uint64
	allocatable, requested int64
}

func (n *node) free() int64 { return n.allocatable - n.requested }

// using returns the node with the usage of a scenario. No key: 0.
func (n *node) using(usage *pb.NodeUsage) *node {
	return &node{allocatable: n.allocatable, requested: usage.GetRequested()["cpu"]}
}

// table is the copy of the host's nodes. StateDelta brings it up to date.
type table struct {
	version *pb.StateVersion // nil: there is no copy
	nodes   []*node          // by index; nil: no node has the index
	count   uint32
	sum     uint64 // of the nodes' generations
}

// apply brings the copy to the delta's target. It returns false if the copy is at neither version of the delta, or if the
// outcome does not have the counts of the delta. The copy then stays as it was, or is dropped if the delta has changed it.
func (t *table) apply(delta *pb.StateDelta) bool {
	next := t
	if delta.Base == nil {
		next = &table{} // the full state
	} else if same(t.version, delta.Target) {
		return true
	} else if !same(t.version, delta.Base) {
		return false
	}
	for _, index := range delta.Removed {
		next.set(index, nil)
	}
	isWhole := true
	for _, state := range delta.Upserts {
		changed := node{name: state.Name}
		if known := next.at(state.Index); known != nil {
			changed = *known
			isWhole = isWhole && (state.Name == "" || state.Name == known.name)
		}
		changed.generation = state.Generation
		if state.Summary != nil {
			changed.allocatable = state.Summary.Allocatable["cpu"]
		}
		if state.Usage != nil {
			changed.requested = state.Usage.Requested["cpu"]
		}
		isWhole = isWhole && changed.name != ""
		next.set(state.Index, &changed)
	}
	next.version = delta.Target
	isWhole = isWhole && next.count == delta.NodeCount && delta.ObjectCount == 0 && next.sum%(1<<53) == delta.GenerationSum
	if isWhole {
		*t = *next
	} else if next == t {
		*t = table{}
	}
	return isWhole
}

// joined returns a chunk together with those before it. The last chunk has the counts.
func joined(before, chunk *pb.StateDelta) *pb.StateDelta {
	chunk.Upserts = append(before.Upserts, chunk.Upserts...)
	chunk.Removed = append(before.Removed, chunk.Removed...)
	return chunk
}

// at returns the node with an index; nil: there is none.
func (t *table) at(index uint32) *node {
	if int(index) >= len(t.nodes) {
		return nil
	}
	return t.nodes[index]
}

// set puts a node in the place of the one with that index; nil removes it.
func (t *table) set(index uint32, changed *node) {
	for int(index) >= len(t.nodes) {
		t.nodes = append(t.nodes, nil)
	}
	if old := t.nodes[index]; old != nil {
		t.count--
		t.sum -= old.generation
	}
	if changed != nil {
		t.count++
		t.sum += changed.generation
	}
	t.nodes[index] = changed
}

// chosen returns the indices of the nodes in a set, in ascending order.
func (t *table) chosen(set *pb.NodeSet) []int {
	var indices []int
	for index, one := range t.nodes {
		listed := index/8 < len(set.GetBitmap()) && set.Bitmap[index/8]>>(index%8)&1 == 1
		if one != nil && listed != set.GetComplement() {
			indices = append(indices, index)
		}
	}
	return indices
}

// bitmapOf returns the bitmap with these indices.
func bitmapOf(indices []int) []byte {
	var bitmap []byte
	for _, index := range indices {
		for len(bitmap) <= index/8 {
			bitmap = append(bitmap, 0)
		}
		bitmap[index/8] |= 1 << (index % 8)
	}
	return bitmap
}

func same(one, other *pb.StateVersion) bool {
	return one != nil && other != nil && one.Epoch == other.Epoch && one.Generation == other.Generation
}
