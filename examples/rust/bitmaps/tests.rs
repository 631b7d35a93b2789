//! The table of nodes, by the vectors of the contract.

use std::fmt::Debug;

use base64::prelude::*;
use prost::Message;
use serde_json::Value;
use serve::contract::*;

use crate::table::{Chunks, Table, bitmap};

fn vectors(file: &str) -> Value {
    let path = format!("{}/../../proto/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

fn message<T: Message + Default>(value: &Value) -> T {
    T::decode(&*BASE64_STANDARD.decode(value["base64"].as_str().unwrap()).unwrap()).unwrap()
}

fn indices(value: &Value) -> Vec<usize> {
    list(value).iter().map(|index| index.as_u64().unwrap() as usize).collect()
}

fn table_of(nodes: impl Iterator<Item = usize>) -> Table {
    let state =
        |index| NodeState { index: index as u32, name: format!("n{index}"), generation: 1, ..Default::default() };
    let upserts: Vec<NodeState> = nodes.map(state).collect();
    let count = upserts.len() as u32;
    let target = Some(StateVersion { epoch: 1, generation: 1 });
    let mut table = Table::default();
    assert!(table.take(&StateDelta {
        target,
        upserts,
        node_count: count,
        generation_sum: count.into(),
        ..Default::default()
    }));
    table
}

fn equal<T: PartialEq + Debug>(name: &Value, found: T, expected: T) {
    assert_eq!(found, expected, "{name}");
}

#[test]
fn table_is_that_of_the_vectors_after_every_step() {
    for case in list(&vectors("state.json")["cases"]) {
        let has_objects = |step: &Value| step["copy"]["object_count"].as_u64().is_some_and(|count| count > 0);
        if list(&case["steps"]).iter().any(has_objects) {
            continue; // FreeCpu declares no objects
        }
        let mut table = Table::default();
        for step in list(&case["steps"]) {
            let before = table.version;
            let delta: StateDelta = if step["in"] == "call" { message(&step["delta"]) } else { StateDelta::default() };
            let taken = if step["in"] == "call" {
                table.take(&delta)
            } else {
                let mut chunks = Chunks::default();
                for (number, chunk) in list(&step["chunks"]).iter().enumerate() {
                    let request: SyncStateRequest = message(chunk);
                    equal(&case["name"], request.sequence as usize, number);
                    chunks.add(request);
                }
                let taken = table.sync(chunks);
                let answer: SyncStateResponse = message(&step["answer"]);
                equal(&case["name"], SyncStateResponse { have: table.version, need_full: !taken }, answer);
                taken
            };
            equal(&case["name"], taken, step["outcome"] != "missing");
            if step["outcome"] == "held" {
                equal(&case["name"], before, delta.target);
            }
            let copy = &step["copy"];
            let version = |copy: &Value| StateVersion {
                epoch: copy["version"]["epoch"].as_u64().unwrap(),
                generation: copy["version"]["generation"].as_u64().unwrap(),
            };
            equal(&case["name"], table.version, (!copy.is_null()).then(|| version(copy)));
            if !copy.is_null() {
                let cpu = |node: &Value, part: &str| node[part]["cpu"].as_i64().unwrap_or_default();
                let free = |node: &Value| {
                    (node["index"].as_u64().unwrap() as usize, cpu(node, "allocatable") - cpu(node, "requested"))
                };
                let all = NodeSet { complement: true, ..Default::default() };
                let found: Vec<(usize, i64)> = table.chosen(&all).map(|(index, node)| (index, node.free())).collect();
                equal(&case["name"], found, list(&copy["nodes"]).iter().map(free).collect());
            }
        }
    }
}

#[test]
fn sets_hold_the_nodes_of_the_vectors() {
    let file = vectors("node_sets.json");
    for one in list(&file["bitmaps"]) {
        let hex: String =
            bitmap(indices(&one["indices"]).into_iter()).iter().map(|byte| format!("{byte:02x}")).collect();
        // Zero bytes at the end say nothing.
        equal(&one["name"], hex.as_str(), one["hex"].as_str().unwrap().trim_end_matches("0000"));
    }
    for one in list(&file["sets"]) {
        let set: NodeSet = message(&one["set"]);
        if set.names.is_empty() {
            let table = table_of(indices(&one["within"]).into_iter());
            equal(&one["name"], table.chosen(&set).map(|(index, _)| index).collect(), indices(&one["indices"]));
        }
    }
}

#[test]
fn digests_are_those_of_the_vectors() {
    for case in list(&vectors("digests.json")["cases"]) {
        let steps = list(&case["steps"]);
        if steps.iter().any(|step| step["object_count"] != 0) {
            continue; // FreeCpu declares no objects
        }
        let after = |count: usize| {
            let mut table = Table::default();
            for step in &steps[..count] {
                assert!(table.take(&message(&step["delta"])), "{}", case["name"]);
            }
            table
        };
        after(steps.len());
        for wrong in list(&case["wrong"]) {
            let taken = after(steps.len() - 1).take(&message(&wrong["delta"]));
            assert!(!taken, "{}: {}", case["name"], wrong["why"]);
        }
    }
}

#[test]
fn free_cpu_of_a_scenario_is_that_of_the_vectors() {
    let file = vectors("scenarios.json");
    let mut table = Table::default();
    assert!(table.take(&message(&file["state"])));
    for one in list(&file["scenarios"]) {
        let changed = message::<Scenario>(&one["by_index"]).node.unwrap();
        let mut node = table.node(changed.node_index.unwrap() as usize).unwrap();
        node.set_usage(&changed.usage.unwrap());
        equal(&one["name"], Some(node.free()), one["free"]["cpu"].as_i64());
    }
}

#[test]
fn dense_scores_are_those_of_the_vectors() {
    let file = vectors("scores.json");
    let dense = |one: &&Value| one["name"].as_str().unwrap().starts_with("dense");
    let forms: Vec<&Value> = list(&file["forms"]).iter().filter(dense).collect();
    assert!(!forms.is_empty());
    for one in forms {
        let scores = Scores {
            dense: list(&one["scores"]).iter().map(|score| score.as_i64().unwrap()).collect(),
            ..Default::default()
        };
        equal(
            &one["name"],
            BASE64_STANDARD.encode(scores.encode_to_vec()).as_str(),
            one["message"]["base64"].as_str().unwrap(),
        );
    }
}
