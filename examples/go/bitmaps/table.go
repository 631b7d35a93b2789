package main

import pb "berth.io/plugin/v1"

// node is what the plugin keeps of one node. Cpu is in thousandths of a core.
type node struct {
	name        string
	generation  uint64
	allocatable int64
	requested   int64
}

// table is the copy of the host's nodes. StateDelta brings it up to date.
type table struct {
	version *pb.StateVersion // nil: there is no copy
	nodes   []*node          // by index; nil: no node has the index
	count   uint32
	sum     uint64 // of the nodes' generations
}

// apply brings the copy to the delta's target. It returns false if the copy is at neither version of the delta, or if the
// copy does not have the counts of the delta afterwards; a wrong copy is dropped.
func (t *table) apply(delta *pb.StateDelta) bool {
	if same(t.version, delta.Target) {
		return true
	}
	if delta.Base == nil {
		*t = table{}
	} else if !same(t.version, delta.Base) {
		return false
	}
	for _, index := range delta.Removed {
		t.set(index, nil)
	}
	for _, state := range delta.Upserts {
		changed := node{}
		if known := t.at(state.Index); known != nil {
			changed = *known
		}
		changed.generation = state.Generation
		if state.Name != "" {
			changed.name = state.Name
		}
		if state.Summary != nil {
			changed.allocatable = state.Summary.Allocatable["cpu"]
		}
		if state.Usage != nil {
			changed.requested = state.Usage.Requested["cpu"]
		}
		t.set(state.Index, &changed)
	}
	t.version = delta.Target
	if t.count != delta.NodeCount || t.sum%(1<<53) != delta.GenerationSum {
		*t = table{}
		return false
	}
	return true
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

// bitmapOf returns the bitmap with these indices, which ascend.
func bitmapOf(indices []int) []byte {
	if len(indices) == 0 {
		return nil
	}
	bitmap := make([]byte, indices[len(indices)-1]/8+1)
	for _, index := range indices {
		bitmap[index/8] |= 1 << (index % 8)
	}
	return bitmap
}

func same(one, other *pb.StateVersion) bool {
	return one != nil && other != nil && one.Epoch == other.Epoch && one.Generation == other.Generation
}
