//! The copy of the host's nodes, as deltas bring it up to date.

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
    nodes: Vec<Option<Node>>, // by index
    count: u32,
    sum: u64,
}

impl Table {
    /// Apply a delta; one that is applied already changes nothing. Returns false if the copy is at neither version.
    pub fn take(&mut self, delta: &StateDelta) -> bool {
        if self.version.is_some() && self.version == delta.target {
            return true;
        }
        if delta.base.is_none() {
            *self = Self::default();
        } else if delta.base != self.version {
            return false;
        }
        delta.removed.iter().for_each(|index| self.put(*index as usize, None));
        for state in &delta.upserts {
            let index = state.index as usize;
            self.put(index, Some(self.node(index).unwrap_or_default().with(state)));
        }
        let is_whole = self.count == delta.node_count && self.sum == delta.generation_sum;
        self.version = if is_whole { delta.target } else { None };
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
        }
    }

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
