//! What the plugin holds for each cycle, and which cycles are over.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use serve::contract::*;

const REMEMBERED: Duration = Duration::from_secs(300); // that a cycle is over, for a Reserve that comes late

/// What is held for one cycle. The token of the cycle is the number of its slot, so that a restarted process takes the
/// slot up.
#[derive(Default)]
struct Held {
    namespace: String,
    uid: String,
    slot: u32, // 0: none
    is_reserved: bool,
    is_permitted: bool, // by a first Permit, which may have let the pod wait
    is_waiting: bool,
}

#[derive(Default)]
pub struct Cycles {
    held: HashMap<String, Held>,
    over: HashSet<String>,
    over_since: VecDeque<(Instant, String)>, // the oldest first
}

impl Cycles {
    fn of(&mut self, id: &str, pod: &ObjectRef) -> &mut Held {
        let new = || Held { namespace: pod.namespace.clone(), uid: pod.uid.clone(), ..Default::default() };
        self.held.entry(id.into()).or_insert_with(new)
    }

    /// Return true if Reserve was answered before.
    pub fn knows(&self, id: &str) -> bool {
        self.held.get(id).is_some_and(|held| held.is_reserved)
    }

    pub fn is_over(&self, id: &str) -> bool {
        self.over.contains(id)
    }

    /// Take the lowest free slot; a cycle that asks again gets the first answer. Returns 0 if none is free.
    pub fn reserve(&mut self, id: &str, pod: &ObjectRef, slots: u32) -> u32 {
        let taken: HashSet<u32> = self.held.values().map(|held| held.slot).collect();
        let held = self.of(id, pod);
        if !held.is_reserved {
            held.is_reserved = true;
            held.slot = (1..=slots).find(|slot| !taken.contains(slot)).unwrap_or_default();
        }
        held.slot
    }

    pub fn wait(&mut self, id: &str, pod: &ObjectRef) {
        let held = self.of(id, pod);
        // A duplicate of a Permit whose pod was allowed since does not begin a second wait.
        held.is_waiting = held.is_waiting || !held.is_permitted;
        held.is_permitted = true;
    }

    /// Return the other pods that wait in a namespace, each with its cycle and its uid.
    pub fn waiting(&self, namespace: &str, but_uid: &str) -> Vec<(String, String)> {
        let waits = |held: &&Held| held.is_waiting && held.namespace == namespace && held.uid != but_uid;
        let of = |(id, held): (&String, &Held)| waits(&held).then(|| (id.clone(), held.uid.clone()));
        self.held.iter().filter_map(of).collect()
    }

    pub fn waits_no_more(&mut self, id: &str) {
        if let Some(held) = self.held.get_mut(id) {
            held.is_waiting = false;
        }
    }

    /// Give back what a cycle holds. A cycle that is not known counts as given back.
    pub fn end(&mut self, id: &str) {
        self.held.remove(id);
        while self.over_since.front().is_some_and(|(since, _)| since.elapsed() > REMEMBERED) {
            self.over_since.pop_front().map(|(_, oldest)| self.over.remove(&oldest));
        }
        if self.over.insert(id.into()) {
            self.over_since.push_back((Instant::now(), id.into()));
        }
    }

    /// Drop the cycles that are bound or hold no slot. Of the others the host says so itself, by Unreserve.
    pub fn ended(&mut self, cycles: &[CycleEnd]) {
        for one in cycles {
            let is_bound = one.outcome() == cycle_end::Outcome::Bound;
            if self.held.get(&one.cycle_id).is_some_and(|held| is_bound || held.slot == 0) {
                self.end(&one.cycle_id);
            }
        }
    }

    /// Keep exactly the cycles that are live. Returns those whose slot is neither remembered nor in the token.
    pub fn keep(&mut self, live: &[LiveReservation]) -> Vec<String> {
        let mut before = std::mem::take(&mut self.held);
        let mut unknown = vec![];
        for one in live {
            let token = str::from_utf8(&one.plugin_token).unwrap_or("?");
            let slot = if token.is_empty() { Ok(0) } else { token.parse() };
            let held = before.remove(&one.cycle_id);
            if held.is_none() && slot.is_err() {
                unknown.push(one.cycle_id.clone());
                continue;
            }
            let pod = one.pod.clone().unwrap_or_default();
            let new = Held {
                namespace: pod.namespace,
                uid: pod.uid,
                slot: slot.unwrap_or_default(),
                is_reserved: true,
                is_permitted: false,
                is_waiting: false,
            };
            let held = Held { is_waiting: one.waiting_on_permit, ..held.unwrap_or(new) };
            self.held.insert(one.cycle_id.clone(), held);
            self.over.remove(&one.cycle_id);
        }
        for id in before.into_keys() {
            self.end(&id);
        }
        unknown
    }
}
