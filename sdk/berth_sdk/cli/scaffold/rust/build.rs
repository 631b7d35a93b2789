//! Generates the Rust code of the contract into OUT_DIR. The protoc is that of PROTOC, else that of PATH.

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-env-changed=PROTO");
    let root = std::env::var("PROTO").unwrap_or("proto".into());
    let files = ["common", "handle", "identity", "queue", "scheduling", "state"];
    let files = files.map(|file| format!("{root}/berth/plugin/v1/{file}.proto"));
    // A call that a plugin does not write answers UNIMPLEMENTED.
    let built = tonic_prost_build::configure().generate_default_stubs(true);
    // serve/lib.rs prints these two without their secrets.
    built.skip_debug(["HandshakeRequest", "HandleEndpoint"]).compile_protos(&files, &[root])
}
