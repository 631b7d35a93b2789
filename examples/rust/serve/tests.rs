//! How prost shows zero values, unknown values and unknown fields, by the vectors of the contract.

use base64::prelude::*;
use prost::Message;
use serde_json::Value;

use crate::contract::*;

/// Read the message that has a name in the file.
fn message<T: Message + Default>(name: &str) -> T {
    let path = format!("{}/../../proto/vectors/zero_values.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let all = ["messages", "unknown"].iter().flat_map(|part| file[*part].as_array().unwrap());
    let one = all.into_iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no vector {name:?}"));
    let bytes = match one["hex"].as_str() {
        Some(hex) => (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect(),
        None => BASE64_STANDARD.decode(one["message"]["base64"].as_str().unwrap()).unwrap(),
    };
    T::decode(&*bytes).unwrap()
}

#[test]
fn zero_is_the_default_and_presence_is_an_option() {
    assert_eq!(message::<PluginStatus>("an empty status").code, 0);
    assert_eq!(message::<PluginStatus>("an empty status").code(), plugin_status::Code::Unspecified);
    let chunk: SyncStateRequest = message("the first chunk of a stream has sequence 0");
    assert_eq!((chunk.sequence, chunk.last), (0, false));
    assert!(chunk.chunk.is_some());
    let reserve: ReserveRequest = message("the node with index 0");
    assert_eq!((reserve.node_index, reserve.trial), (Some(0), None));
    assert_eq!(message::<StateDelta>("a delta without a base is the full state").base, None);
    assert_eq!(message::<StateDelta>("a delta whose base is the empty snapshot").base.unwrap().generation, 0);
    assert_eq!(message::<ReplyContext>("no token: the last one stays").plugin_token, None);
    assert_eq!(message::<ReplyContext>("an empty token: the host forgets the token").plugin_token, Some(vec![]));
    assert_eq!(message::<PreFilterResponse>("no narrowing").eligible, None);
    assert_eq!(message::<PreFilterResponse>("narrowed to no node").eligible, Some(NodeSet::default()));
    assert!(!message::<BindResponse>("the plugin has bound").host_binds);
    let pod: PodSummary = message("an explicit request of 0 has a key");
    assert_eq!((pod.requests.get("cpu"), pod.non_zero_requests.get("cpu")), (Some(&0), None));
}

#[test]
fn numbers_keep_their_64_bits_and_their_sign() {
    let version: StateVersion = message("numbers up to 2^53 - 1");
    assert_eq!((version.epoch, version.generation), ((1 << 53) - 1, (1 << 53) - 1));
    assert_eq!(message::<NamedScore>("a large negative score").score, 1 - (1 << 53));
    assert_eq!(message::<PodSummary>("a negative priority").priority, -5);
}

#[test]
fn unknown_value_keeps_its_number_and_reads_as_unspecified() {
    let status: PluginStatus = message("an unknown code");
    assert_eq!((status.code, status.code()), (99, plugin_status::Code::Unspecified));
    assert!(plugin_status::Code::try_from(status.code).is_err());
    let me: PluginDescriptor = message("an unknown point in a list");
    assert_eq!(me.points, [4, 500]);
    assert_eq!(me.points().collect::<Vec<_>>(), [ExtensionPoint::Filter]); // the accessor leaves 500 out
    assert_eq!(message::<CycleEnd>("an unknown outcome").outcome, 42);
}

#[test]
fn unknown_field_is_dropped() {
    let version: StateVersion = message("an unknown field");
    assert_eq!(version.encode_to_vec(), [8, 7, 16, 5]);
    assert_eq!(message::<StateVersion>("an unknown field of numbers").epoch, 7);
}

#[test]
fn debug_print_shows_no_secret() {
    let hello: HandshakeRequest = message("a secret of the handshake, which no debug print may show");
    let given: ConfigureRequest = message("a secret of the way back, which no debug print may show");
    assert_eq!((&*hello.credential, &*given.handle.as_ref().unwrap().token), ("open-sesame", "open-sesame"));
    let printed = format!("{hello:?} {hello:#?} {given:?} {given:#?}");
    assert!(!printed.contains("open-sesame"), "{printed}");
    assert!(printed.contains("/run/h.sock"), "{printed}");
}
