//! Runs the inputs in `fuzz/corpus` through the properties that the fuzz targets check.
//!
//! `cargo xtask fuzz` finds these inputs. An input that once made a target fail is kept, and every test run checks it.

use std::{collections::BTreeSet, fs, panic::catch_unwind, path::Path};
use switchboard_wire::fuzzing;

/// Every fuzz target, by the name of its file.
macro_rules! targets {
    ($($name:ident)*) => {
        &[$((stringify!($name), fuzzing::$name as fn(&[u8]))),*]
    };
}

type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = targets! {
    baidu_conversation baidu_input baidu_streams centrifuge_conversation centrifuge_input client_input conversation
    erpc_conversation erpc_input flatbuffers_message goim_conversation goim_input hpack http2_client_input
    http2_conversation http2_server_input jsonrpc_input kiss_conversation kiss_input metadata mqtt_conversation
    mqtt_input nats_conversation nats_input resp_conversation resp_input rpcx_client_input rpcx_conversation
    rpcx_server_input server_input sniff thrift_conversation thrift_input thrift_struct websocket_conversation
    websocket_input zmtp_conversation zmtp_curve zmtp_input
};

/// Returns the names of the entries of a folder of `fuzz`; none if the folder does not exist.
fn entries(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"))
}

#[test]
fn every_target_is_listed() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let name = |file: &String| file.trim_end_matches(".rs").to_owned();
    let files = entries(&fuzz().join("fuzz_targets"));
    // Targets of other crates are tested there.
    let is_ours = |file: &&String| {
        let text = fs::read_to_string(fuzz().join("fuzz_targets").join(file));
        text.is_ok_and(|text| text.contains("switchboard_wire::"))
    };
    assert_eq!(targets, files.iter().filter(is_ours).map(name).collect());
    let all: BTreeSet<String> = files.iter().map(name).collect();
    let corpora = entries(&fuzz().join("corpus"));
    assert!(corpora.is_subset(&all), "corpora without a target: {:?}", corpora.difference(&all));
}

#[test]
fn every_input_of_the_corpora_passes() {
    for (name, property) in TARGETS {
        let folder = fuzz().join("corpus").join(name);
        for input in entries(&folder) {
            let data = fs::read(folder.join(&input)).expect("an input can be read");
            assert!(
                catch_unwind(|| property(&data)).is_ok(),
                "{name} fails on {input}, {} bytes",
                data.len()
            );
        }
    }
}
