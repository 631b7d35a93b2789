//[reserve]
//! What cycles hold on nodes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use prost_types::value::Kind;
use serve::contract::plugin_status::Code;
use serve::contract::*;

const REMEMBERED: Duration = Duration::from_secs(300); // that a cycle is over, for a Reserve that comes late

#[derive(Default)]
pub struct Places {
    pub limits: HashMap<String, usize>, // by profile: the places of each node
    held: HashMap<String, String>,      // cycle -> node; "": no place was free
    over: HashMap<String, Instant>,     // cycle -> when it ended
}

/// Read the argument podsPerNode.
pub fn limit(args: &prost_types::Struct) -> Result<usize, String> {
    match args.fields.get("podsPerNode").map(|value| &value.kind) {
        None => Ok(110),
        Some(Some(Kind::NumberValue(number))) if *number >= 1.0 && number.fract() == 0.0 => Ok(*number as usize),
        Some(_) => Err("podsPerNode: must be a whole number above 0".into()),
    }
}

impl Places {
    /// Give a place of the node to the cycle. A cycle that asks again gets its first answer.
    pub fn take(&mut self, cycle: &str, node: &str, profile: &str) -> Result<(), (Code, &'static str)> {
        if self.over.contains_key(cycle) {
            return Err((Code::Error, "the cycle is over"));
        }
        if !self.held.contains_key(cycle) {
            let taken = self.held.values().filter(|other| *other == node).count();
            let is_free = taken < self.limits.get(profile).copied().unwrap_or_default();
            self.held.insert(cycle.into(), if is_free { node.into() } else { String::new() });
        }
        if self.held[cycle].is_empty() {
            return Err((Code::Unschedulable, "node(s) have too many pods under way"));
        }
        Ok(())
    }

    /// Give back what a cycle holds. A cycle that is not known counts as ended.
    pub fn end(&mut self, cycle: &str) {
        self.held.remove(cycle);
        self.over.retain(|_, at| at.elapsed() < REMEMBERED);
        self.over.insert(cycle.into(), Instant::now());
    }

    /// Drop the cycles that hold nothing any more. Of the others the host says so itself, by Unreserve.
    pub fn ended(&mut self, cycles: &[CycleEnd]) {
        for one in cycles {
            let is_bound = one.outcome() == cycle_end::Outcome::Bound;
            if self.held.get(&one.cycle_id).is_some_and(|node| is_bound || node.is_empty()) {
                self.end(&one.cycle_id);
            }
        }
    }

    /// Replace what the cycles hold. The others are over.
    pub fn keep(&mut self, live: Vec<LiveReservation>) {
        for cycle in std::mem::take(&mut self.held).keys() {
            self.end(cycle);
        }
        self.held = live.into_iter().map(|one| (one.cycle_id, one.node_name)).collect();
        self.over.retain(|cycle, _| !self.held.contains_key(cycle));
    }
}
//[/]
