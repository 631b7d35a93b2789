//! The copy of the host's nodes, as deltas bring it up to date.

use std::collections::HashMap;

use serve::contract::*;

const MODULUS: u64 = 1 << 53;

#[derive(Clone, Copy, Default)]
pub struct Node {
    generation: u64,
    allocatable: i64, // thousandths of a core
    requested: i64,
}

impl Node {
    /// Return the free CPU in thousandths of a core.
    pub fn free(&self) -> i64 {
        self.allocatable - self.requested
    }

    pub fn set_usage(&mut self, usage: &NodeUsage) {
        self.requested = usage.requested.get("cpu").copied().unwrap_or_default();
    }

    /// Return the node with the parts that `state` has; a part that it lacks did not change.
    pub fn with(mut self, state: &NodeState) -> Self {
        self.generation = state.generation;
        if let Some(summary) = &state.summary {
            self.allocatable = summary.allocatable.get("cpu").copied().unwrap_or_default();
        }
        if let Some(usage) = &state.usage {
            self.set_usage(usage);
        }
        self
    }
}

#[derive(Default)]
pub struct Table {
    /// The version of the copy; None: there is no copy.
    pub version: Option<StateVersion>,
    nodes: Vec<Option<Node>>,      // by index
    names: HashMap<usize, String>, // of the nodes
    count: u32,
    sum: u64,
}

impl Table {
    /// Apply a delta; one that is applied already changes nothing. Returns false if the copy is at neither version.
    /// A delta without a base is the full state, which replaces the copy.
    pub fn take(&mut self, delta: &StateDelta) -> bool {
        if delta.base.is_none() {
            *self = Self::default();
        } else if self.version == delta.target {
            return true;
        } else if delta.base != self.version {
            return false;
        }
        let mut is_whole = delta.object_count == 0; // the plugin declares no objects
        delta.removed.iter().for_each(|index| self.put(*index as usize, None));
        for state in &delta.upserts {
            let index = state.index as usize;
            let known = self.node(index);
            let name = self.names.entry(index).or_insert_with(|| state.name.clone());
            is_whole &= !name.is_empty() && (state.name.is_empty() || *name == state.name);
            self.put(index, Some(known.unwrap_or_default().with(state)));
        }
        is_whole &= self.count == delta.node_count && self.sum == delta.generation_sum;
        self.version = if is_whole { delta.target } else { None };
        is_whole
    }

    /// Bring the copy to the target of a SyncState. Returns false if the host must send the full state. A full state
    /// replaces the copy, also one at the same version; if it is faulty, the copy stays.
    pub fn sync(&mut self, chunks: Chunks) -> bool {
        if chunks.whole.base.is_some() {
            return self.take(&chunks.whole);
        }
        let mut fresh = Self::default();
        let is_whole = fresh.take(&chunks.whole);
        if is_whole {
            *self = fresh;
        }
        is_whole
    }

    fn put(&mut self, index: usize, node: Option<Node>) {
        self.nodes.resize(self.nodes.len().max(index + 1), None);
        if let Some(old) = std::mem::replace(&mut self.nodes[index], node) {
            self.count -= 1;
            self.sum = (self.sum + MODULUS - old.generation) % MODULUS;
        }
        if let Some(new) = node {
            self.count += 1;
            self.sum = (self.sum + new.generation) % MODULUS;
        } else {
            self.names.remove(&index);
        }
    }

    /// Return a node of the copy; None: the copy has none with this index.
    pub fn node(&self, index: usize) -> Option<Node> {
        self.nodes.get(index).copied().flatten()
    }

    /// Return the nodes of a set with their indices, in the order of the indices.
    pub fn chosen<'a>(&'a self, set: &'a NodeSet) -> impl Iterator<Item = (usize, &'a Node)> {
        let is_listed = |index: usize| set.bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
        let all = self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.as_ref()?)));
        all.filter(move |(index, _)| is_listed(*index) != set.complement)
    }
}

/// Return the bitmap of nodes by their indices.
pub fn bitmap(indices: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut bytes = vec![];
    for index in indices {
        bytes.resize(bytes.len().max(index / 8 + 1), 0);
        bytes[index / 8] |= 1 << (index % 8);
    }
    bytes
}

/// The chunks of one SyncState as one delta.
#[derive(Default)]
pub struct Chunks {
    whole: StateDelta,
    pub count: u32,
}

impl Chunks {
    pub fn add(&mut self, request: SyncStateRequest) {
        let StateDelta { mut upserts, mut removed, .. } = std::mem::take(&mut self.whole);
        let mut chunk = request.chunk.unwrap_or_default();
        upserts.append(&mut chunk.upserts);
        removed.append(&mut chunk.removed);
        // The counts and the sum are those of the last chunk.
        self.whole = StateDelta { upserts, removed, ..chunk };
        self.count += 1;
    }
}
